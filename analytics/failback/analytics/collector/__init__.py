"""The collector: takes segments of consume logs over HTTP and writes them into the lake.

A segment is stored once, whole, or not at all, and is answered after it is on the disk. ``app`` has
the routes, ``segment_store`` the disk side.
"""
