"""OffsetSnapshot: when a snapshot is due, what a restore would do, and its status. Pure.

snapshot_object   the plan of the resource
kept_table        the offsets of all pairs as one ConfigMap
"""
