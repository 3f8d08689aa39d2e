"""The broker's server: its port, its connections, and the answers that wait to be written.

What an answer says is decided in ``processors``.
"""
