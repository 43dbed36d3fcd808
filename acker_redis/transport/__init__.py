"""How Redis is reached: URLs, clients of redis-py, and what their errors mean.

It may import ``protocol`` and ``errors``. Begin with ``urls.py`` (the forms of a
URL), then ``connect.py`` and ``errors.py``.
"""
