"""From the message-trace topic of unmodified Java clients to a run folder that can be reported on.

``ingest`` is the whole way; everything behind ``pages`` is a pure function of what was read.
"""
