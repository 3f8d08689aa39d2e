"""The current state of a cluster, read from its objects and its members.

What should be is in ``planning.cluster``.
"""
