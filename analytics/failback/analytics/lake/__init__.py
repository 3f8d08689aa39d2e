"""The lake: stores, files, catalogue, conversion, compaction and repair.

What a run is does not matter here.
"""
