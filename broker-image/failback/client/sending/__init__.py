"""Sending one message: the choice of a queue, attempts, latency faults and the body.

A producer group's life (start, heartbeat, transaction state) is not in here.
"""
