"""Consume queues: their entries, the table of all queues, and the writer of entries."""
