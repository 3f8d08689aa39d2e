"""The collector: takes segments of consume logs over HTTP and writes them into the lake.

A segment is stored once, whole, or not at all; the answer comes after it is on the disk. Sending it
again changes nothing, so a shipper that is in doubt sends it again. ``app`` has the routes,
``store`` what happens on the disk; ``stream_sizes``, ``pressure``, ``ids`` and ``tokens`` decide
without I/O.
"""
