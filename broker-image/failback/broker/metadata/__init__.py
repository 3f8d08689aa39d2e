"""The JSON tables that a broker keeps: topics, groups, consumer offsets, delay offsets.

Each has the file format and the ``.bak`` protocol of 4.9. Who may change a table is decided by the
callers.
"""
