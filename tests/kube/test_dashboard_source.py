"""A dashboard shows the clusters of a namespace, with no more rights than the chart gives it."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.dashboard.sources.kube_clusters import KubeReader, notes_of
from failback.client.admin.admin import AdminClient
from tests.support.common.polling import wait_until
from tests.support.dashboard.dashboard_lab import DashboardLab, running_dashboard
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Identity, Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import chart_rules, operator
from tests.support.operator.real_cluster import GROUP, TOPIC, LivedCluster
from tests.support.operator.rights import rights_of, without

ACCOUNT = "failback-dashboard"
PATIENCE = 120.0


def looker(namespace: Namespace, rules: list[Object], name: str = ACCOUNT) -> Identity:
    return namespace.identity(name, rules)


def rules_of_the_chart(namespace: Namespace) -> list[Object]:
    return chart_rules(namespace, "dashboard.enabled=true", account=ACCOUNT)


def clusters(lab: DashboardLab) -> dict[str, Any]:
    found: dict[str, Any] = lab.ask("GET", "/api/v1/clusters").json()
    return found


def pair_of(lab: DashboardLab) -> dict[str, Any]:
    found = clusters(lab)["clusters"]
    pairs = found[0]["pairs"] if found else []
    return dict(pairs[0]) if pairs else {"state": "unseen", "members": [], "groups": []}


def is_known(pair: dict[str, Any]) -> bool:
    """Both members answer, and their ages are known."""
    roles = {each["role"]: each for each in pair["members"] if each["answered"]}
    return (
        pair["state"] == "ok"
        and set(roles) == {"master", "slave"}
        and roles["master"]["persist_age_seconds"] is not None
        and roles["slave"]["sync_age_seconds"] is not None
    )


def is_amiss(lab: DashboardLab) -> bool:
    """Something does not hold, as for the seconds in which a slave lacks a new topic."""
    return any(" is False" in note for each in clusters(lab)["clusters"] for note in each["notes"])


@pytest.mark.soak
async def test_the_fleet_is_what_resources_and_brokers_say(
    namespace: Namespace, node: NodeProcess
) -> None:
    with operator(namespace):
        cluster = LivedCluster(namespace, pairs=1, slavesPerPair=1, slaveReadEnable=True)
        cluster.wait_settled()
        identity = looker(namespace, rules_of_the_chart(namespace))
        options = ("--kube-namespace", namespace.name, "--kubeconfig", str(identity.kubeconfig))
        with running_dashboard(namespace.folder / "dashboard", *options, with_runs=False) as lab:
            wait_until(lambda: is_known(pair_of(lab)), "the pair with its ages", PATIENCE)
            wait_until(lambda: not is_amiss(lab), "the slave's copy of the topics", PATIENCE)
            _is_as_the_status_says(clusters(lab), cluster.wait_settled(), namespace.name)
            await _offsets_are_the_brokers_own(lab, cluster)
            _a_live_change_is_followed(lab, cluster)
            _a_refusal_is_one_sentence_and_hides_nothing(lab, namespace)


def _is_as_the_status_says(found: dict[str, Any], item: Object, namespace: str) -> None:
    status = item["status"]
    assert found["problems"] == []
    (shown,) = found["clusters"]
    assert (shown["name"], shown["source"]) == ("orders", "kubernetes")
    assert shown["where"] == f"{namespace}/orders"
    assert shown["notes"] == notes_of(item)
    assert not [note for note in shown["notes"] if " is False" in note], "all is well"
    assert shown["engine"] == "failback"
    (told,), (pair,) = status["pairs"], shown["pairs"]
    assert (pair["pair"], pair["broker"]) == (told["name"], told["name"])
    assert pair["slave_read_enable"] is True
    assert {each["slaveReadEnable"] for each in told["members"]} == {True}
    members = {each["member"]: each for each in pair["members"]}
    assert set(members) == {each["pod"] for each in told["members"]}
    for each in told["members"]:
        member = members[each["pod"]]
        assert (member["address"], member["broker_id"]) == (each["address"], each["brokerId"])
        assert (member["role"] == "master") == (each["observedRole"] != "SLAVE")
        assert (member["state"], member["restarts"]) == ("Ready", each["restarts"])
    (slave,) = (each for each in pair["members"] if each["role"] == "slave")
    assert slave["ha_lag_bytes"] == 0
    assert next(each["lag"] for each in told["members"] if each["pod"] == slave["member"]) == "Zero"


async def _offsets_are_the_brokers_own(lab: DashboardLab, cluster: LivedCluster) -> None:
    async with AdminClient([cluster.name_server]) as admin:
        await admin.update_offset(cluster.address("orders-0-0"), GROUP, TOPIC, 0, 7)

    def places() -> tuple[Any, ...]:
        found = lab.ask("GET", f"/api/v1/offsets?group={GROUP}&topic={TOPIC}").json()["offsets"]
        row: dict[str, Any] = next((each for each in found if each["qid"] == 0), {})
        return row.get("master_memory"), row.get("slave_table")

    wait_until(lambda: places() == (7, 7), "the offset on master and slave", PATIENCE)
    page = lab.ask("GET", "/", headers={"Accept": "text/html"}).text
    for text in ("orders-0-0-0", "orders-0-1-0", "slaveReadEnable is on", GROUP):
        assert text in page


def _a_live_change_is_followed(lab: DashboardLab, cluster: LivedCluster) -> None:
    cluster.change(slaveReadEnable=False)

    def is_off() -> bool:
        off: bool = pair_of(lab)["slave_read_enable"] is False
        return off

    wait_until(is_off, "slaveReadEnable off on the page", PATIENCE)


def _a_refusal_is_one_sentence_and_hides_nothing(lab: DashboardLab, namespace: Namespace) -> None:
    rules = rules_of_the_chart(namespace)
    lost = ("failback.dev", "brokerclusters", "list")
    namespace.api.patch("Role", ACCOUNT, {"rules": without(rules, lost)})
    wait_until(lambda: clusters(lab)["problems"], "what is refused", PATIENCE)
    found = clusters(lab)
    (problem,) = found["problems"]
    assert problem.startswith("Kubernetes refuses (403): brokerclusters.failback.dev is forbidden")
    assert f":{namespace.name}:{ACCOUNT}" in problem
    assert problem in lab.ask("GET", "/", headers={"Accept": "text/html"}).text.replace(
        "&#34;", '"'
    )
    assert [each["state"] for each in found["clusters"]] == ["ok"], "brokers are asked as before"
    namespace.api.patch("Role", ACCOUNT, {"rules": rules})
    wait_until(lambda: clusters(lab)["problems"] == [], "the right is back", PATIENCE)


def test_each_right_of_the_chart_is_needed(namespace: Namespace) -> None:
    rules = rules_of_the_chart(namespace)
    for number, right in enumerate(sorted(rights_of(rules))):
        identity = looker(namespace, without(rules, right), f"less-{number}")
        with closing(_reader(namespace, identity)) as reader:
            view = reader.look()
        assert view.clusters == ()
        (problem,) = view.problems
        assert problem.startswith(f"Kubernetes refuses (403): {right[1]}.{right[0]}"), right
    with closing(_reader(namespace, looker(namespace, rules))) as reader:
        assert reader.look().problems == ()


def test_credentials_that_became_invalid_are_read_again(namespace: Namespace) -> None:
    identity = looker(namespace, rules_of_the_chart(namespace))
    content = identity.kubeconfig.read_text()
    with closing(_reader(namespace, identity)) as reader:
        identity.kubeconfig.write_text(content.replace(identity.token, "nonsense"))
        (problem,) = reader.look().problems
        assert problem.startswith("Kubernetes refuses (401): ")
        identity.kubeconfig.write_text(content)
        assert reader.look().problems == ()


def _reader(namespace: Namespace, identity: Identity) -> KubeReader:
    settings = DashboardSettings(
        namespace.folder, kubeconfig=identity.kubeconfig, kube_namespaces=(namespace.name,)
    )
    return KubeReader(settings)
