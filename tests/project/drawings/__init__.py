"""The drawings of the documentation, all in one style: ``python -m tests.project.drawings``."""
