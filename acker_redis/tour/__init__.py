"""The tour: a small pipeline on an embedded server, played before the reader's eyes.

It may import ``embedded``, ``rotator``, ``sync`` and the wings below, and needs rich. Begin with
``story.py``, which has the steps in order. ``pipeline.py`` is the program that the tour shows: a
source and two bolts. ``book.py`` reads their trees from Redis, ``screen.py`` draws them, and
``check.py`` compares the end with the script.
"""
