"""The producer as a program uses it.

How a message is sent and tried again is in ``sending``.
"""
