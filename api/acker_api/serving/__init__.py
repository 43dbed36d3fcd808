"""How the app is served: uvicorn, worker processes, deadlines of connections.

It may import all other wings. Begin with ``server.py``.
"""
