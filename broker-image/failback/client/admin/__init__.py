"""Calls of operators and tools: the admin client, and comparisons of a pair's offset tables.

Nothing here takes part in producing or consuming.
"""
