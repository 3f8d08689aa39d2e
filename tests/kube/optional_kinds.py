"""Kinds of others that the operator may make objects of: definitions as good as a test needs."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.support.kube_lab.api import Api
from tests.support.kube_lab.control_plane import ControlPlane

OPTIONAL: Final = {
    "monitoring.coreos.com": ("PodMonitor", "podmonitors", "v1"),
    "sparkoperator.k8s.io": ("SparkApplication", "sparkapplications", "v1beta2"),
    "chaos-mesh.org": ("NetworkChaos", "networkchaos", "v1alpha1"),
}
"""API group → kind, plural and version."""
SETTINGS: Final = ("podMonitors.enabled=true", "spark.operator.enabled=true")
"""Of the chart: let the operator make them."""
PLURALS: Final = {kind: plural for kind, plural, _ in OPTIONAL.values()}


@contextmanager
def optional_kinds(control_plane: ControlPlane) -> Iterator[None]:
    """Let the API server serve them while the block lasts, for one test at a time."""
    with foreign_kinds(control_plane):
        yield from _served(control_plane)


@contextmanager
def foreign_kinds(control_plane: ControlPlane) -> Iterator[None]:
    """Hold the right to add and remove definitions that are not ours."""
    with (control_plane.folder / "foreign-kinds.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _served(control_plane: ControlPlane) -> Iterator[None]:
    for group, (kind, plural, version) in OPTIONAL.items():
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {"name": version, "served": True, "storage": True}
        control_plane.install_definition(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": f"{plural}.{group}",
                    "annotations": {"api-approved.kubernetes.io": "unapproved, a test's own"},
                },
                "spec": {
                    "group": group,
                    "scope": "Namespaced",
                    "names": {"kind": kind, "plural": plural},
                    "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
                },
            }
        )
    try:
        yield
    finally:
        for group, (_, plural, _) in OPTIONAL.items():
            control_plane.api.delete("CustomResourceDefinition", f"{plural}.{group}")
        for group, (_, plural, _) in OPTIONAL.items():
            control_plane.api.wait_gone("CustomResourceDefinition", f"{plural}.{group}")


def names_of(api: Api, plural: str) -> list[str]:
    """Return the names of the objects of an optional kind."""
    ((group, (_, _, version)),) = (item for item in OPTIONAL.items() if item[1][1] == plural)
    found = api.request("GET", f"/apis/{group}/{version}/namespaces/{api.namespace}/{plural}")
    return [str(item["metadata"]["name"]) for item in found["items"]]
