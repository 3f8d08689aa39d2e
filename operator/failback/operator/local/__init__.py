"""The local runtime: rendered objects as processes on loopback addresses.

``plan`` and ``status`` here serve only the local runtime; those of Kubernetes are in ``planning``.
"""
