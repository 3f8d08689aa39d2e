"""Calls of operators and tools: the admin client, and where a group's offsets are kept.

Nothing here takes part in producing or consuming.
"""
