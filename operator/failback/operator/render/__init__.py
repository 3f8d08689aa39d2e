"""Rendering: custom resources to Kubernetes objects. Pure; one module per child object."""
