"""The admin service, before a real Redis."""
