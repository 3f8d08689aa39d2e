"""Equal parts are kept once, and forgotten once nobody has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.operator.planning.plan.memory import Shared

TEXTS = st.text("ab", max_size=3)
LEAVES = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | TEXTS
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab"), inner)
)


def pod(name: str) -> dict[str, Any]:
    """Return an object as it comes from the API server: nothing of it is anybody else's."""
    environment = [{"name": "HOME", "value": "/home/rocketmq"}, {"name": "POD", "value": name}]
    spec = {"containers": [{"name": "broker", "env": environment}], "replicas": 1}
    found: dict[str, Any] = json.loads(json.dumps({"metadata": {"name": name}, "spec": spec}))
    return found


@given(st.lists(JSON, max_size=6))
def test_shared_data_are_the_same_data(values: list[Any]) -> None:
    shared = Shared()
    for value in values:
        assert json.dumps(shared.take(value)) == json.dumps(value)  # 1, 1.0 and true differ here
    shared.sweep()
    for value in values:
        assert json.dumps(shared.take(value)) == json.dumps(value)


def test_equal_parts_of_two_objects_are_one() -> None:
    shared = Shared()
    one, other = shared.take(pod("a")), shared.take(pod("b"))
    mine, theirs = one["spec"]["containers"][0], other["spec"]["containers"][0]
    assert mine["env"][0] is theirs["env"][0]
    assert mine["env"][1] is not theirs["env"][1]
    assert shared.take(pod("a")) is one


def test_what_nobody_has_is_forgotten() -> None:
    shared = Shared()
    kept, gone = shared.take(pod("a")), shared.take(pod("b"))
    before = len(shared)
    del gone
    shared.sweep()
    assert 0 < len(shared) < before
    assert shared.take(pod("a")) is kept
    del kept
    shared.sweep()
    assert len(shared) == 0


@pytest.mark.full
def test_the_table_of_a_changing_world_stays_small() -> None:
    shared = Shared()
    for number in range(20_000):
        shared.take(pod(f"pod-{number}"))
    assert len(shared) <= 10_000
