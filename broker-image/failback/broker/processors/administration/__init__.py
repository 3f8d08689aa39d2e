"""Requests of operators and tools: topics, groups, configuration, inspection, cleaning, queries.

No producer or consumer sends any of them in its normal work.
"""
