"""Replication of the commit log between a master and its slaves.

Tables and offsets are copied in ``cluster``; records become queue entries in ``store.writing``.
"""
