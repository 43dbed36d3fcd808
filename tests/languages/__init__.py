"""Clients of all languages, held to the same vectors: see ``clients/DRIVER.md``."""
