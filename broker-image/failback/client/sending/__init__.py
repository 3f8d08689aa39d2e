"""Sending one message: the choice of a queue, the attempts, the body.

A producer group's life (start, heartbeat, transaction state) is not in here.
"""
