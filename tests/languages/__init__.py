"""Tests of the clients in all languages against the same vectors; see ``clients/DRIVER.md``."""
