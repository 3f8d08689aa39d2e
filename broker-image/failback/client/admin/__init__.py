"""Calls of operators and tools: the admin client, surveys, and what offset tables of a pair show.

Nothing here takes part in producing or consuming.
"""
