"""Clusters from custom resources: also what no name server lists, and one sentence for errors."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.dashboard.serve import make_app
from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.dashboard.sources import kube_clusters
from failback.analytics.dashboard.sources.kube_clusters import (
    KubeReader,
    clusters_of_resources,
    notes_of,
    problem_of,
    with_registered,
)
from failback.analytics.dashboard.views.fleet import cluster_document
from failback.kube.errors import ApiError, refusal
from failback.protocol.errors import ConfigError

SERVER = {"metadata": {"name": "main"}, "status": {"addresses": ["main-ns-0.main-ns:9876"]}}


def member(ordinal: int, **more: Any) -> dict[str, Any]:
    address = f"orders-0-{ordinal}-0.brokers:10911"
    return {"ordinal": ordinal, "pod": f"orders-0-{ordinal}-0", "brokerId": ordinal,
            "address": address, "ready": True, "restarts": ordinal,
            **more}  # fmt: skip


def resource(*members: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "orders"},
        "spec": {"nameServerRef": {"name": "main"}, "slaveReadEnable": True, **spec},
        "status": {"pairs": [{"name": "orders-0", "index": 0, "members": list(members)}]},
    }


def cluster_of(*members: dict[str, Any], **spec: Any) -> Any:
    (found,) = clusters_of_resources([SERVER], [resource(*members, **spec)], "shop")
    return found


def test_a_status_names_members_with_their_pods_and_metrics() -> None:
    found = cluster_of(member(0), member(1, ready=False))
    assert (found.key, found.where, found.engine) == (
        "shop.orders",
        "shop/orders",
        "failback",
    )
    assert found.namesrv == ("main-ns-0.main-ns:9876",)
    assert [(each.name, each.broker_id, each.state, each.http, each.restarts)
            for each in found.members] == [
        ("orders-0-0-0", 0, "Ready", "orders-0-0-0.brokers:8088", 0),
        ("orders-0-1-0", 1, "Unready", "orders-0-1-0.brokers:8088", 1),
    ]  # fmt: skip


def test_brokers_that_have_no_metrics_or_no_known_name_are_not_asked_for_any() -> None:
    apache = cluster_of(member(0), engine={"type": "Apache", "version": "4.9.8"})
    outside = cluster_of(member(0), networking={"brokerAddress": "External"})
    assert [each.members[0].http for each in (apache, outside)] == ["", ""]
    assert apache.engine == "apache 4.9.8"


def test_what_the_status_leaves_out_comes_from_the_name_servers() -> None:
    by_address = with_registered(
        cluster_of(member(0, address="")), {"orders-0": ("orders", {0: "10.0.0.5:10911"})}
    )
    assert [each.address for each in by_address.members] == ["10.0.0.5:10911"]
    assert by_address.members[0].name == "orders-0-0-0"
    rest = with_registered(
        cluster_of(member(1)),
        {"orders-0": ("orders", {0: "m:10911", 1: "orders-0-1-0.brokers:10911"}),
         "orders-1": ("orders", {0: "n:10911"}), "stock-0": ("stock", {0: "x:10911"})},
    )  # fmt: skip
    shown = {pair.name: [each.address for each in pair.members] for pair in rest.pairs}
    assert shown == {
        "orders-0": ["orders-0-1-0.brokers:10911", "m:10911"],
        "orders-1": ["n:10911"],
    }


def test_a_pair_of_which_nothing_runs_is_down_and_shows_what_is_wanted() -> None:
    (pair,) = cluster_document(cluster_of(), {}, {}, 0.0)["pairs"]
    assert (pair["state"], pair["members"], pair["slave_read_enable"]) == ("down", [], True)
    override = {"pairOverrides": [{"index": 0, "slaveReadEnable": False}]}
    (pair,) = cluster_document(cluster_of(**override), {}, {}, 0.0)["pairs"]
    assert pair["slave_read_enable"] is False


def test_only_conditions_that_matter_are_notes() -> None:
    def condition(kind: str, status: str) -> dict[str, str]:
        return {"type": kind, "status": status, "reason": "Why", "message": "so it is"}

    well = [condition(kind, "True") for kind in ("Ready", "ConfigApplied", "MetadataSynced")]
    well += [
        condition(kind, "False") for kind in ("Reconciling", "ScalingDown", "Warning", "Paused")
    ]
    item = {"metadata": {"name": "orders"}, "status": {"conditions": well}}
    assert notes_of(item) == []
    odd = [condition("RolesConsistent", "Unknown"), condition("Warning", "True")]
    item = {"metadata": {"name": "orders"}, "status": {"conditions": [*well, *odd]}}
    assert notes_of(item) == [
        "orders: RolesConsistent is Unknown (Why): so it is",
        "orders: Warning is True (Why): so it is",
    ]


def refused(status: int, phrase: str, body: str) -> ApiError:
    """Return what a refusal of the API server is raised as."""
    return refusal("list", "brokerclusters", status, body, {}, phrase)


def test_a_refusal_is_one_sentence() -> None:
    said = 'brokerclusters.failback.dev is forbidden: User "u" cannot list resource'
    forbidden = refused(403, "Forbidden", json.dumps({"kind": "Status", "message": said}))
    assert problem_of(forbidden) == f"Kubernetes refuses (403): {said}"
    unknown = refused(404, "Not Found", "404 page not found\n")
    assert problem_of(unknown) == (
        "Kubernetes refuses (404): it has no failback.dev/v1alpha1 resources: Not Found"
    )
    assert problem_of(OSError("no route\nand more")) == "Kubernetes cannot be asked: no route"


def test_where_the_kubernetes_client_is_missing_the_option_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"--kube-namespace: .*'\.\[serve\]'"):
        make_app(DashboardSettings(tmp_path, kube_namespaces=("shop",)), [], lambda _: None)


class Server:
    """An API server's answers by namespace; an exception is raised."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def close(self) -> None:
        """The reader lets go of it."""

    def list_all(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        self.asked.append(namespace)
        answer = self.answers[namespace]
        if isinstance(answer, Exception):
            raise answer
        return [SERVER] if kind == "NameServer" else list(answer)


def reader_of(server: Server, path: Path, monkeypatch: pytest.MonkeyPatch) -> KubeReader:
    monkeypatch.setattr(kube_clusters, "_connect", lambda _: server)
    return KubeReader(DashboardSettings(path, kube_namespaces=tuple(server.answers)))


def test_clusters_of_equal_name_in_two_namespaces_are_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(shop=[resource(member(0))], stock=[resource(member(0))])
    view = reader_of(server, tmp_path, monkeypatch).look()
    assert [each.where for each in view.clusters] == ["shop/orders", "stock/orders"]
    assert [each.key for each in view.clusters] == ["shop.orders", "stock.orders"]
    assert view.problems == ()


def test_a_namespace_that_is_refused_hides_no_other_and_keeps_what_was_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(shop=[resource(member(0))], stock=[resource(member(0))])
    reader = reader_of(server, tmp_path, monkeypatch)
    reader.look()
    server.answers |= {"shop": refused(403, "Forbidden", "{}"), "stock": []}
    view = reader.look()
    assert [each.where for each in view.clusters] == ["shop/orders"]
    assert view.problems == ("Kubernetes refuses (403): Forbidden",)


def test_a_server_that_does_not_answer_is_asked_once_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(shop=OSError("no route"), stock=OSError("no route"))
    view = reader_of(server, tmp_path, monkeypatch).look()
    assert view.problems == ("Kubernetes cannot be asked: no route",)
    assert server.asked == ["shop"]
