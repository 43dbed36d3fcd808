"""Shapes of requests and responses, as pydantic models.

It may import ``acting`` and the wings below. Begin with ``problem.py``.
"""
