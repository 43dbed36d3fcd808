"""The app: middleware, routes, and the services that they share.

It may import all wings but ``serving``. Begin with ``app.py``; ``routes/`` has a file for each
group of paths.
"""
