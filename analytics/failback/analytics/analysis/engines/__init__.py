"""Two ways to the same tables: ``local`` (numpy and Arrow in one process) and ``spark``."""
