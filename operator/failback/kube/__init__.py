"""The Kubernetes API server: kinds, configuration, requests, errors, leases.

The callers decide what to ask for. exec and port-forward are in the chaos harness.
"""
