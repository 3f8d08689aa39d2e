"""Custom resources rendered to Kubernetes objects, one module per child object. Pure.

Both runtimes use the same objects: Kubernetes applies them, ``local`` executes them.
"""
