"""The JSON tables that a broker keeps: topics, groups, consumer offsets, delay offsets.

Each has the file format and the ``.bak`` protocol of 4.9. The callers decide
which client may change a table.
"""
