"""Consume queues: the format of an entry, the table of all queues, the late writer of entries.

Which entries are made is decided in ``store.writing``.
"""
