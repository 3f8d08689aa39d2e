"""``broker.conf``: its text, its keys and their values, the broker's identity, the time scale.

Nothing here opens a store or a socket.
"""
