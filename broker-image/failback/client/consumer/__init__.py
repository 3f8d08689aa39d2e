"""Push consumption: assignment, pulls, process queues, handling, offsets, send-backs.

Shared connections and timers belong to ``instance``, bytes on the wire to ``remoting``.
"""
