"""What the service changes: trees, settings, namespaces; and the audit log of it.

It may import ``reading`` and the wings below. Begin with ``actions.py``; ``audit.py`` writes an
entry before each action.
"""
