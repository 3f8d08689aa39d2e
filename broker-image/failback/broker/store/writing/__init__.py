"""Appending records to the log, and dispatching them to consume queues and index.

Nothing here syncs; ``store.upkeep.flush`` does.
"""
