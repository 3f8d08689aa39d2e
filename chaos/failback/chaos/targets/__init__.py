"""Where members run: processes of the local runtime, or pods of Kubernetes.

What is done to a member is decided in ``faults``.
"""
