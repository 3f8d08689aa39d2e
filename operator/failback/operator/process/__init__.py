"""The operator's process: its start, its graceful stop, its health endpoints.

What it does while it runs is in ``controller``.
"""
