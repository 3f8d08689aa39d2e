"""Drift: an object is applied when it is missing, outdated or changed, and not otherwise."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.operator.planning.plan.children import HASH, drift, finished, plan_children
from failback.operator.planning.plan.types import Apply, Delete

BUDGET: dict[str, Any] = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "orders-0", "namespace": "shop", "labels": {"a": "b"}},
    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"a": "b"}}},
}


def stored(manifest: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return an object as the server keeps it: with fields of its own."""
    done = copy.deepcopy(finished(manifest))
    done["metadata"] |= {"uid": "u-1", "resourceVersion": "7"}
    done["spec"] |= {"unhealthyPodEvictionPolicy": "AlwaysAllow", **spec}
    return done


def test_what_the_server_added_is_no_drift() -> None:
    assert drift(finished(BUDGET), stored(BUDGET)) is None


def test_a_missing_object_is_applied_with_the_hash_of_itself() -> None:
    actions, reasons = plan_children([BUDGET], {})
    assert reasons == {("PodDisruptionBudget", "orders-0"): "missing"}
    assert isinstance(actions[0], Apply)
    assert len(actions[0].manifest["metadata"]["annotations"][HASH]) == 16


def test_a_field_of_ours_that_somebody_changed_has_drifted() -> None:
    assert drift(finished(BUDGET), stored(BUDGET, maxUnavailable=2)) == "drifted"


def test_a_field_that_is_no_longer_wanted_makes_the_object_outdated() -> None:
    without = copy.deepcopy(BUDGET)
    del without["spec"]["maxUnavailable"]
    assert drift(finished(without), stored(BUDGET)) == "outdated"


def test_an_object_on_its_way_out_is_left_alone_until_it_is_gone() -> None:
    leaving = stored(BUDGET, maxUnavailable=2)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert drift(finished(BUDGET), leaving) is None


@pytest.mark.parametrize(
    ("want", "have"),
    [
        ({"requests": {"cpu": "1000m"}}, {"requests": {"cpu": "1"}}),
        ({"requests": {"memory": "1024Mi"}}, {"requests": {"memory": "1Gi"}}),
        ({"emptyDir": {}}, {}),
        ({"value": ""}, {}),
        ({"tolerations": []}, {}),
        ({"sizeLimit": "1Gi"}, {"sizeLimit": "1024Mi"}),
    ],
)
def test_what_the_server_writes_its_own_way_is_no_drift(
    want: dict[str, Any], have: dict[str, Any]
) -> None:
    wanted = {**BUDGET, "spec": want}
    kept = finished(wanted)
    kept["spec"] = have
    assert drift(finished(wanted), kept) is None


@pytest.mark.parametrize("have", [{"requests": {"cpu": "2"}}, {"requests": {}}, {}])
def test_another_quantity_is_drift(have: dict[str, Any]) -> None:
    wanted = {**BUDGET, "spec": {"requests": {"cpu": "1"}}}
    kept = finished(wanted)
    kept["spec"] = have
    assert drift(finished(wanted), kept) == "drifted"


def test_claim_templates_stay_as_they_are_stored() -> None:
    def template(size: str) -> dict[str, Any]:
        return {
            "metadata": {"name": "data"},
            "spec": {"resources": {"requests": {"storage": size}}},
        }

    wanted = {**BUDGET, "spec": {"volumeClaimTemplates": [template("30Gi")]}}
    before = {**BUDGET, "spec": {"volumeClaimTemplates": [template("20Gi")]}}
    done = finished(wanted, before)
    assert done["spec"]["volumeClaimTemplates"] == [template("20Gi")]
    assert wanted["spec"]["volumeClaimTemplates"] == [template("30Gi")]


def test_only_what_belongs_to_no_member_is_deleted() -> None:
    budget = stored(BUDGET)
    member = {"kind": "StatefulSet", "metadata": {"name": "orders-1-0", "uid": "u-2"}}
    objects = {
        ("PodDisruptionBudget", "orders-0"): budget,
        ("StatefulSet", "orders-1-0"): member,
    }
    actions, _ = plan_children([], objects)
    assert actions == (Delete(("PodDisruptionBudget", "orders-0"), "u-1"),)


def test_what_pods_need_comes_before_the_pods() -> None:
    statefulset = {"kind": "StatefulSet", "metadata": {"name": "a", "namespace": "shop"}}
    service = {"kind": "Service", "metadata": {"name": "z", "namespace": "shop"}}
    actions, _ = plan_children([statefulset, service], {})
    assert [item.manifest["kind"] for item in actions if isinstance(item, Apply)] == [
        "Service",
        "StatefulSet",
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(spec=st.dictionaries(st.text(max_size=5), json_values, max_size=4))
def test_an_applied_object_is_never_applied_again(spec: dict[str, Any]) -> None:
    manifest = {**BUDGET, "spec": spec}
    have = finished(manifest)
    actions, reasons = plan_children([manifest], {("PodDisruptionBudget", "orders-0"): have})
    assert (actions, reasons) == ((), {})
