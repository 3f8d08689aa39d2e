"""The custom resources of ``failback.dev/v1alpha1`` as pydantic models, one module per kind.

They are the one source of schemas. Rules over several fields are in ``schema``.
"""
