"""Tests of the clients in all languages against the same cases; see ``clients/DRIVER.md``."""
