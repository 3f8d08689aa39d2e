"""The current state of a cluster: ``cluster_state`` states the facts of one pass, once.

What should be is decided in ``planning.cluster`` and ``planning.operations``.
"""
