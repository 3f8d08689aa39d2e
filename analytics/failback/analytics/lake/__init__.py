"""The lake: its store, files, catalogue, conversion, compaction and repair.

Nothing here knows what a run or a cause is.
"""
