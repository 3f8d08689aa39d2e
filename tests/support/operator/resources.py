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


def properties_of(text: str) -> dict[str, str]:
    """The settings of a ``broker.conf`` as the operator writes it."""
    return dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)


def name_server_at(namespace: str) -> str:
    """The address of the first name server of NameServer ``main``."""
    return f"main-ns-0.main-ns.{namespace}.svc.cluster.local:9876"


def member_at(namespace: str, member: str) -> str:
    """The address of a member such as ``orders-0-1``: the cluster's name comes before its pair."""
    cluster = member.rsplit("-", 2)[0]
    return f"{member}-0.{cluster}-brokers.{namespace}.svc.cluster.local:10911"


def marks(**values: str | None) -> dict[str, Any]:
    """A patch that sets or removes annotations of our prefix; ``_`` in a name is ``-``."""
    named = {f"failback.dev/{key.replace('_', '-')}": value for key, value in values.items()}
    return {"metadata": {"annotations": named}}
