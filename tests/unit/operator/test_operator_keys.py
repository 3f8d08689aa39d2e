"""The operator's own keys: by resource, for its pods alone, and as the files are now."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from failback.client.remoting.guarded.access import LOOK_SECONDS
from failback.operator.brokers.operator_keys import OperatorKeys
from failback.operator.brokers.peers import Peers, Target
from failback.operator.controller.observe import Observer
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.metrics import Metrics
from failback.operator.planning.observed.observed import MemberView
from failback.operator.render.context import kubernetes_context
from failback.operator.schema.decoding import decode
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from tests.support.operator.resources import resource

TOOLS = "accessKey: {}\nsecretKey: secret-of-{}\n"


def key_of(keys: OperatorKeys, namespace: str, name: str, *, signed: bool = True) -> str:
    request = RemotingCommand.request(RequestCode.GET_BROKER_CONFIG)
    keys.of(namespace, name, tls=False, signed=signed).sign(request)
    return (request.ext_fields or {}).get("AccessKey", "")


def test_a_key_is_for_the_resource_that_its_file_names(tmp_path: Path) -> None:
    keys = OperatorKeys(tmp_path)
    assert not keys.has_key("shop", "orders")
    (tmp_path / "shop.orders.tools.yml").write_text(TOOLS.format("operations", "operations"))
    assert keys.has_key("shop", "orders")
    assert key_of(keys, "shop", "orders") == "operations"
    for namespace, name in (("shop", "main"), ("other", "orders"), ("shop.orders", "tools")):
        assert not keys.has_key(namespace, name)
        assert key_of(keys, namespace, name) == ""
    assert key_of(keys, "shop", "orders", signed=False) == ""
    assert key_of(OperatorKeys(None), "shop", "orders") == ""


def test_a_broken_file_is_told_once_and_signs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, file = OperatorKeys(tmp_path), tmp_path / "shop.orders.tools.yml"
    file.write_text("accessKey: operations\nsecretKey:\n")
    for _ in range(3):
        assert not keys.has_key("shop", "orders")
    (line,) = caplog.messages
    assert "secretKey" in line
    assert "shop.orders.tools.yml" in line
    file.write_text(TOOLS.format("operations", "operations"))
    assert keys.has_key("shop", "orders")
    file.write_text(TOOLS.format("operations-2", "operations"))
    now = LOOK_SECONDS + 1
    monkeypatch.setattr("failback.client.remoting.guarded.access.time.monotonic", lambda: 1e9 + now)
    assert key_of(keys, "shop", "orders") == "operations-2"


async def test_another_address_is_asked_without_a_key(tmp_path: Path) -> None:
    (tmp_path / "shop.orders.tools.yml").write_text(TOOLS.format("operations", "operations"))
    peers = Peers(Metrics(version="0", kopf="0", kubernetes="0"))
    client = peers.admin._client
    access = OperatorKeys(tmp_path).of("shop", "orders", tls=False)
    peers.use("10.0.0.1:10911", access, "orders-0-0-0.orders-brokers.shop.svc")
    assert client.access_of("10.0.0.1:10911") is access
    assert client.access_of("10.0.0.2:10911") is None
    peers.use("10.0.0.1:10911", None, "")
    assert client.access_of("10.0.0.1:10911") is None
    await peers.close()


async def test_an_address_that_another_cluster_got_is_asked_without_the_first_ones_key(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.orders.tools.yml").write_text(TOOLS.format("operations", "operations"))
    peers = Peers(Metrics(version="0", kopf="0", kubernetes="0"))
    keys, nothing = OperatorKeys(tmp_path), cast(Any, None)
    observer = Observer(nothing, peers, nothing, own_access=keys)
    context, member = kubernetes_context("shop", "0.2.0"), {(0, 0): MemberView(0, 0)}
    targets = {(0, 0): Target("10.0.0.1:10911", "uid", is_master=True)}
    acl = {"secretRef": {"name": "keys"}}
    for name, guarded, found in (("orders", {"acl": acl}, True), ("others", {}, False)):
        spec = {"nameServerAddresses": ["ns:9876"], **guarded}
        cluster = decode(resource("BrokerCluster", name, **spec) | {"metadata": meta(name)})
        assert isinstance(cluster, BrokerCluster)
        observer._use_own_access(cluster, member, targets, context)
        access = peers.admin._client.access_of("10.0.0.1:10911")
        assert (access is not None and access.key_file is not None) is found
    await peers.close()


def meta(name: str) -> dict[str, str]:
    return {"name": name, "namespace": "shop"}
