"""Custom resources of ours as tests write them."""

from __future__ import annotations

import json
from typing import Any, Final

API_VERSION: Final = "failback.dev/v1alpha1"


def resource(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """Return a custom resource of ours."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def as_file(*resources: dict[str, Any]) -> str:
    """The text of a file with these resources, as ``failback up`` reads it."""
    return "\n---\n".join(json.dumps(each) for each in resources)
