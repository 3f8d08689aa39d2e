"""The offsets that consumer groups have committed, and which of its master's a slave takes.

Commits arrive through ``processors.consumers`` and ``processors.pulling``.
"""
