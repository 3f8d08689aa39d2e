"""The Kubernetes API server: kinds, configuration, requests, errors, leases.

What to ask for is decided by those who ask. exec and port-forward are in the chaos harness.
"""
