"""Appending records, and dispatching them to queues and index."""
