"""The JSON tables that a broker keeps: topics, groups, offsets, delay offsets.

Each has the file format and the ``.bak`` protocol of 4.9.
"""
