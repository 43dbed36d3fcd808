"""Changes that the service makes: to trees, settings and namespaces; and their audit log.

It may import ``reading`` and the wings below. Begin with ``actions.py``; ``audit.py`` writes an
entry before each action.
"""
