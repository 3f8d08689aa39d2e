"""The chart as helm renders it, without a cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from tools.setup_kube import fetch_tools

from tests.support.common.polling import SCALE
from tests.support.processes.child_process import ROOT

CHART = ROOT / "charts" / "failback"
RELEASE_NAMESPACE = "failback"
Object = dict[str, Any]

MODES: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "two-namespaces": (
        "watchNamespaces={shop,stock}",
        "leaderElection.enabled=true",
        "replicas=2",
        "rbac.watchCrds=true",
        "rbac.readNodes=true",
        "chaos.enabled=true",
        "grafana.dashboards.enabled=false",
    ),
    "cluster": (
        "rbac.scope=cluster",
        "crds.keep=false",
        "grafana.dashboards.enabled=false",
    ),
    "everything": (
        "grafana.dashboards.enabled=false",
        "metrics.serviceMonitor.enabled=true",
        "podMonitors.enabled=true",
        "prometheusRule.enabled=true",
        "prometheusRule.runbookUrl=https://docs.example.org/runbooks",
        "chaos.enabled=true",
        "chaos.labelNamespace=true",
        "dashboard.enabled=true",
        "dashboard.nameServers={ns-0.example.org:9876,ns-1.example.org:9876}",
        "dashboard.access.keySecret=orders-key",
        "dashboard.access.caSecret=orders-ca",
        "dashboard.access.certSecret=orders-tls",
        "dashboard.access.serverName=*",
        "chaos.chaosMesh.enabled=true",
        "spark.operator.enabled=true",
        "priorityClassName=system-cluster-critical",
        "podLabels.team=messaging",
        "image.pullSecrets[0].name=registry",
        "images.broker=registry.example/broker:2",
        "allow.images={registry.example/mq/}",
        "allow.serviceAccounts={mq-*}",
        "allow.secrets={db}",
        "allow.externalServices={LoadBalancer}",
        "allow.nameServers={ns.example.org:9876}",
        "networkPolicies.clients[0].namespaceSelector.matchLabels.team=shop",
        "networkPolicies.monitoring[0].namespaceSelector.matchLabels.team=ops",
    ),
    "collector": (
        "grafana.dashboards.enabled=false",
        "collector.enabled=true",
        "collector.lake=s3://messaging/lake",
        "collector.objectStoreSecret=object-store",
        "collector.tokens=00ff read prometheus",
        "collector.tlsSecret=collector-tls",
        "collector.keepDays=30",
    ),
    "dashboard": (
        "grafana.dashboards.enabled=false",
        "watchNamespaces={shop,stock}",
        "dashboard.enabled=true",
        "dashboard.tokens=00ff read oncall",
        "dashboard.proxy.address=127.0.0.1",
        "dashboard.publicHosts={failback.example.org}",
        "dashboard.tlsSecret=dashboard-tls",
        "dashboard.runsClaim=failback-runs",
        "dashboard.ingress.enabled=true",
        "dashboard.ingress.className=nginx",
        "dashboard.ingress.host=failback.example.org",
        "dashboard.ingress.tlsSecret=ingress-tls",
        "dashboard.ingress.annotations.team=messaging",
    ),
    "exporters": (
        "grafana.dashboards.enabled=false",
        "podMonitors.enabled=true",
        "exporters[0].name=orders",
        "exporters[0].nameServers={ns-0.example.org:9876,ns-1.example.org:9876}",
        "exporters[1].name=billing",
        "exporters[1].nameServers={10.1.2.3:9876}",
        "exporters[1].intervalSeconds=30",
        "exporters[1].timeoutSeconds=2",
        "exporters[1].clients=false",
        "exporters[1].access.keySecret=billing-key",
        "exporters[1].access.tls=true",
        "exporters[1].queueMetrics={paid,%RETRY%billing}",
        "exporters[1].resources.limits.memory=1Gi",
    ),
    "bare": (
        "replicas=0",
        "metrics.enabled=false",
        "grafana.dashboards.enabled=false",
        "admissionPolicies.enabled=false",
        "networkPolicies.enabled=false",
        "spark.enabled=false",
        "rbac.create=false",
        "serviceAccount.create=false",
        "uninstall.removeFinalizers=false",
    ),
}
"""Ways to install, each with its settings; the definitions are looked at apart."""


def helm(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm; its own files go into ``folder``."""
    homes = {f"HELM_{name}_HOME": str(folder / name) for name in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [str(fetch_tools() / "helm"), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **homes},
        timeout=120 * SCALE,
        check=False,
    )


def settings(words: tuple[str, ...]) -> list[str]:
    return [part for word in words for part in ("--set", word)]


def render(folder: Path, *words: str, crds: bool = False) -> str:
    """Return what ``helm template`` prints; definitions only when asked for."""
    flags = settings((*words, f"crds.install={str(crds).lower()}"))
    done = helm(folder, "template", "failback", str(CHART), "-n", RELEASE_NAMESPACE, *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> list[Object]:
    """Read rendered YAML."""
    return [document for document in YAML(typ="safe").load_all(text) if document]
