"""Transactional messages: half messages, their end, and the check of those that have none."""
