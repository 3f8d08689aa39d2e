"""The lake: its store, files, catalogue, compaction and repair.

Nothing here knows what a run or a cause is.
"""
