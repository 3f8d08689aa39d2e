"""What holds for every rendering: determinism, disjoint selectors, one master, local = cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failback.operator.kinds.base import Resource
from failback.operator.local.addresses import local_context, loopback_address
from failback.operator.local.root import Root
from failback.operator.local.supported import refuse_unsupported
from failback.operator.render.config import properties_text, restart_hash
from failback.operator.render.context import Object, kubernetes_context
from failback.operator.render.objects import render
from failback.operator.schema.decoding import decode

ORDERS = Path(__file__).parents[2] / "data" / "operator" / "orders.yaml"


def name_server(name: str = "main", **spec: Any) -> Resource:
    return decode(
        {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": "NameServer",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def cluster(name: str, **spec: Any) -> Resource:
    return decode(
        {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": "BrokerCluster",
            "metadata": {"name": name},
            "spec": {"nameServerRef": {"name": "main"}, **spec},
        }
    )


@st.composite
def clusters(draw: st.DrawFn) -> list[Resource]:
    names = draw(st.lists(st.sampled_from(["a", "a-0", "a-0-1", "b"]), max_size=3, unique=True))
    found: list[Resource] = [name_server(replicas=draw(st.integers(1, 3)))]
    for name in names:
        slaves = draw(st.integers(0, 3))
        overrides = draw(
            st.lists(
                st.fixed_dictionaries(
                    {"index": st.integers(0, 3), "masterMember": st.integers(0, slaves)}
                ),
                max_size=3,
                unique_by=lambda each: each["index"],
            )
        )
        found.append(
            cluster(
                name,
                pairs=draw(st.integers(1, 3)),
                slavesPerPair=slaves,
                pairOverrides=overrides,
                slaveReadEnable=draw(st.booleans()),
            )
        )
    return found


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [each for each in objects if each["kind"] == kind]


def matches(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


@given(clusters())
@settings(max_examples=20, deadline=None)
def test_every_pod_matches_one_statefulset_and_one_budget(items: list[Resource]) -> None:
    objects = render(items, kubernetes_context("default", "0.1.0"))
    pods = [
        each["spec"]["template"]["metadata"]["labels"] for each in of_kind(objects, "StatefulSet")
    ]
    for kind in ("StatefulSet", "PodDisruptionBudget"):
        selectors = [each["spec"]["selector"]["matchLabels"] for each in of_kind(objects, kind)]
        assert [sum(matches(each, pod) for each in selectors) for pod in pods] == [1] * len(pods)


@given(clusters())
@settings(max_examples=20, deadline=None)
def test_every_pair_has_one_master_and_a_permutation_of_ids(items: list[Resource]) -> None:
    objects = render(items, kubernetes_context("default", "0.1.0"))
    ids: dict[tuple[str, str], list[int]] = {}
    for each in of_kind(objects, "ConfigMap"):
        if "broker.conf" in each["data"]:
            lines = each["data"]["broker.conf"].splitlines()[1:]
            conf = dict(line.split("=", 1) for line in lines)
            pair = (conf["brokerClusterName"], conf["brokerName"])
            ids.setdefault(pair, []).append(int(conf["brokerId"]))
            assert (conf["brokerRole"] == "SLAVE") == (conf["brokerId"] != "0")
    assert all(sorted(each) == list(range(len(each))) for each in ids.values())


@given(clusters())
@settings(max_examples=15, deadline=None)
def test_names_are_unique_and_every_reference_resolves(items: list[Resource]) -> None:
    objects = render(items, kubernetes_context("default", "0.1.0"))
    keys = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(keys) == len(set(keys))
    for each in of_kind(objects, "StatefulSet"):
        spec = each["spec"]
        assert ("Service", spec["serviceName"]) in keys
        pod = spec["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())}
        for container in (*pod["initContainers"], *pod["containers"]):
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        for volume in pod["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in keys


@pytest.mark.full
def test_two_processes_with_different_hash_seeds_render_equal_bytes() -> None:
    program = (
        "import json, sys; from failback.operator.schema.loading import load_resources;"
        "from failback.operator.render.context import kubernetes_context;"
        "from failback.operator.render.objects import render;"
        f"items = load_resources([{str(ORDERS)!r}]).items;"
        "print(json.dumps(render(items, kubernetes_context('shop', '0.1.0'))))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0])


def test_a_live_change_alters_the_file_and_not_the_restart_hash() -> None:
    before = {"brokerName": "a", "slaveReadEnable": "false", "flushDiskType": "ASYNC_FLUSH"}
    live = {**before, "slaveReadEnable": "true"}
    roll = {**before, "flushDiskType": "SYNC_FLUSH"}
    unknown = {**before, "somethingNew": "1"}
    assert properties_text(live) != properties_text(before)
    assert restart_hash(live) == restart_hash(before)
    assert len({restart_hash(each) for each in (before, roll, unknown)}) == 3


@given(clusters())
@settings(max_examples=10, deadline=None)
def test_local_objects_differ_only_in_folders_addresses_and_ports(items: list[Resource]) -> None:
    # Every place of the local context is substituted back, longest text first.
    root = Root("/local/root")
    names = [
        each["metadata"]["name"]
        for each in of_kind(render(items, kubernetes_context("default", "0.1.0")), "StatefulSet")
    ]
    ports = {name: 20_000 + 10 * index for index, name in enumerate(names)}
    local = render(items, local_context("default", root, ports, "0.1.0"))
    refuse_unsupported(local, root)
    kubernetes = kubernetes_context("default", "0.1.0")
    back: dict[str, str] = {}
    for each in of_kind(local, "StatefulSet"):
        name, service = each["metadata"]["name"], each["spec"]["serviceName"]
        for index in range(each["spec"]["replicas"]):
            pod = f"{name}-{index}"
            back[loopback_address("default", pod)] = kubernetes.address_of(pod, service)
            back[str(root.home(pod))] = kubernetes.home(pod)
            back[str(root.run_dir(pod))] = kubernetes.run_dir(pod)
        remoting = 9876 if name == "main-ns" else 10911
        back[str(ports[name])] = str(remoting - 2)
        back[str(ports[name] + 2)] = str(remoting)
        back[str(ports[name] + 3)] = str(remoting + 1)
        back[str(ports[name] + 5)] = "8088"
    back[str(root.home("$(POD_NAME)"))] = kubernetes.home("")
    back[str(root.run_dir("$(POD_NAME)"))] = kubernetes.run_dir("")
    text = json.dumps(local)
    for place in sorted(back, key=len, reverse=True):
        text = text.replace(place, back[place])
    restored = [_without_hash(each) for each in json.loads(text)]
    assert restored == [_without_hash(each) for each in render(items, kubernetes)]


def _without_hash(each: Object) -> Object:
    """The restart hash is over the real lines, so it is not restored by substitution."""
    if each["kind"] == "StatefulSet":
        del each["spec"]["template"]["metadata"]["annotations"]["failback.dev/restart-hash"]
    return each
