"""Faults on clusters that run on Kubernetes: the target, its guards and its lease."""
