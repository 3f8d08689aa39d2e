"""Transactional messages: half messages, their end, and the check of those that have none.

The requests that end a transaction are answered in ``processors.sending``.
"""
