"""``broker.conf``: its text, keys and values, the broker's identity and the scale of its timers.

Nothing here opens a store or a socket.
"""
