"""Integrations: messages that travel with other systems carry their ids by themselves.

Most integrations need a library, which is an extra. Each may import ``aio``, ``sync``, ``flows``
and the wings below, and ``core``, but no other integration. Begin with ``core/__init__.py``, which
says what all have in common, and in what each transport differs.
"""
