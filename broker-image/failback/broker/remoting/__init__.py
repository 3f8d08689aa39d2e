"""The broker's server: its ports, its connections, and the bytes of send answers.

What an answer says is decided in ``processors``.
"""
