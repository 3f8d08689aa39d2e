"""Small tables that grow with a run's length: of each only the rows that a report can tell apart.

Samples, polls, rebalances and routes are read chunk by chunk. Each reduction is a function of a
chunk that keeps some of its rows; applied to what it kept of several chunks, it keeps what it would
have kept of them together. ``docs/design/small-tables.md`` says which reader needs which rows.
"""
