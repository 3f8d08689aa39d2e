"""Links of pods that Chaos Mesh cuts: one NetworkChaos for a pod and a link.

A NetworkPolicy could not: policies only allow, and what another one allows stays allowed. Fields:
https://chaos-mesh.org/docs/simulate-network-chaos-on-kubernetes/
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from failback.chaos.cluster.link import SNMP, Cut, resent_segments
from failback.chaos.cluster.view import LIMIT_SECONDS
from failback.chaos.cluster.wire import split_address
from failback.chaos.errors import GuardRefused, TargetError
from failback.chaos.targets.kube.api import KubeApi
from failback.kube.resources import Object

KIND: Final = "NetworkChaos"
INJECT_SECONDS: Final = 60.0
SELECTOR: Final = "app.kubernetes.io/name=failback"
_COMPONENT: Final = "app.kubernetes.io/component"
_DIRECTIONS: Final = {"both": "both", "in": "from", "out": "to"}


class MeshNetwork:
    """Cuts links of the pods at addresses."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    def require(self) -> None:
        """Raise ``GuardRefused`` when links cannot be cut here."""
        if not self._api.serves(KIND):
            problem = "Chaos Mesh drops packets here: install it, and chaos.chaosMesh.enabled=true"
            raise GuardRefused("NetworkIsolated", f"{problem} in Failback's chart")

    def cut(self, address: str, cut: Cut) -> None:
        pods = self._api.pods(SELECTOR)
        body = network_chaos(pod_at(pods, address), cut, pods)
        name = str(body["metadata"]["name"])
        self._api.create(body)
        end = time.monotonic() + INJECT_SECONDS
        while not _is_injected(self._api.find(KIND, name)):
            if time.monotonic() >= end:
                self._remove(name)
                raise TargetError(f"cut {cut.link} of {address}", "Chaos Mesh has not injected it")
            time.sleep(0.2)

    def join(self, address: str, link: str) -> None:
        self._remove(_name_of(pod_at(self._api.pods(SELECTOR), address), link))

    def resent(self, address: str) -> int:
        pod = pod_at(self._api.pods(SELECTOR), address)
        container = pod["spec"]["containers"][0]["name"]
        found = self._api.exec(pod["metadata"]["name"], container, ["cat", f"/proc/{SNMP}"])
        return resent_segments(found.stdout.decode("ascii"))

    def _remove(self, name: str) -> None:
        """Chaos Mesh keeps the object until its daemons have taken the rules back."""
        self._api.delete(KIND, name)
        end = time.monotonic() + INJECT_SECONDS
        while self._api.find(KIND, name) is not None:
            if time.monotonic() >= end:
                raise TargetError(f"join {name}", "Chaos Mesh has not taken it back")
            time.sleep(0.2)


def pod_at(pods: Sequence[Object], address: str) -> Object:
    """Return the pod of an address. Raises ``TargetError`` when there is none."""
    host = split_address(address)[0]
    for pod in pods:
        if host == pod["status"].get("podIP") or host.split(".")[0] == pod["metadata"]["name"]:
            return pod
    raise TargetError(f"pod at {address}", "there is none")


def network_chaos(pod: Object, cut: Cut, pods: Sequence[Object]) -> Object:
    """Return the object that cuts a link of a pod, for a while that outlasts the fault.

    Raises:
        TargetError: The link has no other end, or packets are to be rejected.
    """
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    if cut.reject:
        raise TargetError(f"cut {cut.link} of {name}", "Chaos Mesh rejects no packets: mode Drop")
    spec = {
        "mode": "all",
        "selector": {"namespaces": [namespace], "pods": {namespace: [name]}},
        "direction": _DIRECTIONS[cut.direction],
        "target": {"mode": "all", "selector": _other_end(pod, cut, pods)},
        "duration": f"{math.ceil(cut.seconds + LIMIT_SECONDS)}s",
        **_action(cut),
    }
    return {
        "apiVersion": "chaos-mesh.org/v1alpha1",
        "kind": KIND,
        "metadata": {"name": _name_of(pod, cut.link), "namespace": namespace},
        "spec": spec,
    }


def _name_of(pod: Object, link: str) -> str:
    return f"failback-{pod['metadata']['name']}-{link}"


def _other_end(pod: Object, cut: Cut, pods: Sequence[Object]) -> Mapping[str, Any]:
    """Select the pods at the other end; a client is every pod that is no broker or name server."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    if cut.link == "clients":
        ours = {"key": _COMPONENT, "operator": "NotIn", "values": ["broker", "namesrv"]}
        return {"expressionSelectors": [ours]}
    if cut.link == "nameserver":
        return {"namespaces": [namespace], "labelSelectors": {_COMPONENT: "namesrv"}}
    pair = name.rsplit("-", 2)[0]
    names = [each["metadata"]["name"] for each in pods]
    others = [each for each in names if each.rsplit("-", 2)[0] == pair and each != name]
    if not others:
        raise TargetError(f"cut {cut.link} of {name}", "the link has no other end here")
    return {"namespaces": [namespace], "pods": {namespace: others}}


def _action(cut: Cut) -> Mapping[str, Any]:
    if cut.delay_ms:
        delay = {"latency": f"{cut.delay_ms:g}ms", "jitter": "0ms", "correlation": "0"}
        return {"action": "delay", "delay": delay}
    if cut.bytes_per_second:
        rate = cut.bytes_per_second
        limits = {"rate": f"{rate}bps", "limit": max(rate, 3000), "buffer": max(rate, 3000)}
        return {"action": "bandwidth", "bandwidth": limits}
    if cut.total:
        return {"action": "partition"}
    loss = {"loss": f"{cut.loss_ratio * 100:g}", "correlation": "0"}
    return {"action": "loss", "loss": loss}


def _is_injected(found: Object | None) -> bool:
    conditions = ((found or {}).get("status") or {}).get("conditions") or ()
    return any(each["type"] == "AllInjected" and each["status"] == "True" for each in conditions)
