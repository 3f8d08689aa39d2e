"""One module per kind of ``failback.dev/v1alpha1``, as pydantic models."""
