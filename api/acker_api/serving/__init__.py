"""How the app is served: uvicorn, worker processes, timeouts of connections.

It may import all other wings. Begin with ``server.py``.
"""
