"""The operator as a real process, under exactly the rights that the chart gives it."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Identity, Namespace
from tests.support.net.ports import free_port
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

CHART = Path(__file__).parents[3] / "charts" / "failback"


READS_NODES = "rbac.readNodes=true"
"""Setting of the chart with which the operator sees that a node is drained."""


def chart_rules(
    namespace: Namespace, *settings: str, account: str = "failback-operator", kind: str = "Role"
) -> list[dict[str, Any]]:
    """Return the rules of the chart's Role for an account in this namespace.

    Args:
        settings: Of the chart, such as ``podMonitors.enabled=true``.
        kind: ``ClusterRole`` = what the operator may do beyond the namespace.
    """
    shown = namespace.helm(
        "template",
        "failback",
        str(CHART),
        "--show-only",
        "templates/rbac.yaml",
        *(part for word in ("chaos.enabled=true", *settings) for part in ("--set", word)),
    ).out
    for document in YAML(typ="safe", pure=True).load_all(shown):
        if not document or document["kind"] != kind:
            continue
        if kind == "ClusterRole" or document["metadata"]["name"] == account:
            rules: list[dict[str, Any]] = document["rules"]
            return rules
    raise AssertionError(f"the chart has no Role for {account}")


def operator_identity(
    namespace: Namespace, *settings: str, server: str = "", name: str = "op"
) -> Identity:
    """Create a ServiceAccount with the rules of the chart's Role, under settings of the chart."""
    everywhere = READS_NODES in settings
    return namespace.identity(
        name,
        chart_rules(namespace, *settings),
        cluster_rules=chart_rules(namespace, *settings, kind="ClusterRole") if everywhere else (),
        server=server,
    )


class OperatorProcess:
    """One ``failback operator run``; it can be killed and started again."""

    def __init__(
        self,
        namespace: Namespace,
        identity: Identity,
        command: Sequence[str] = (),
        **variables: str,
    ) -> None:
        """Make it; ``command`` runs the same program in another way."""
        self.identity = identity
        self.port = free_port()
        environment = {
            **failback_environment(),
            "KUBECONFIG": str(identity.kubeconfig),
            "FAILBACK_WATCH_NAMESPACES": namespace.name,
            "FAILBACK_NAMESPACE": namespace.name,
            "FAILBACK_HTTP_HOST": "127.0.0.1",
            "FAILBACK_HTTP_PORT": str(self.port),
            "FAILBACK_LOG_FORMAT": "text",
            **variables,
        }
        self.process = TestProcess(
            f"operator-{self.port}",
            command or failback_command("cli", "operator", "run"),
            namespace.folder,
            environment=environment,
        )

    def start(self) -> None:
        """Start it; it works once its watches are up."""
        self.process.start()

    def wait_until_ready(self) -> None:
        """Wait for ``/readyz``."""

        def is_ready() -> bool:
            assert self.process.alive, self.process.errors()[-4000:]
            try:
                return self.get("/readyz") == "ok"
            except OSError:
                return False

        wait_until(is_ready, "the operator's readiness", 60)

    def get(self, path: str) -> str:
        """Return the body of a page of its health server."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
            return text


@contextmanager
def operator(namespace: Namespace, *settings: str, **variables: str) -> Iterator[OperatorProcess]:
    """Run an operator for one namespace until the block ends; its rights are of these settings."""
    found = OperatorProcess(namespace, operator_identity(namespace, *settings), **variables)
    try:
        found.start()
        found.wait_until_ready()
        yield found
    finally:
        found.process.dispose()


def is_true(kind: str) -> Any:
    """Return a predicate: an object's condition of this type is True."""
    return lambda item: condition_of(item, kind).get("status") == "True"


def condition_of(item: Object, kind: str) -> Object:
    """Return a condition of an object; empty when it has none of that type."""
    for entry in item.get("status", {}).get("conditions") or ():
        if entry["type"] == kind:
            found: Object = entry
            return found
    return {}
