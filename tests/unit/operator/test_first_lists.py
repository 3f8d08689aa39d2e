"""Readiness of the watches: every list must have arrived once."""

from __future__ import annotations

import pytest

from failback.operator.controller.handlers import FirstLists

PODS = "/api/v1/namespaces/{}/pods"
TOPICS = "/apis/failback.dev/v1alpha1/namespaces/{}/topics"


def test_each_watch_of_each_namespace_is_waited_for() -> None:
    lists = FirstLists(["pods", "topics"], ["shop", "stock"])
    assert lists.problem() == "not listed yet: pods, topics"
    for path in (PODS.format("shop"), TOPICS.format("shop"), TOPICS.format("stock")):
        assert "pods" in lists.problem()
        lists.note(path, watches=True, status=200)
    assert lists.problem() == "not listed yet: pods"
    lists.note(PODS.format("stock"), watches=True, status=200)
    assert lists.problem() == ""


def test_an_operator_of_all_namespaces_watches_without_one() -> None:
    lists = FirstLists(["topics"], [])
    lists.note(TOPICS.format("shop"), watches=True, status=200)
    assert lists.problem() == "not listed yet: topics"
    lists.note("/apis/failback.dev/v1alpha1/topics", watches=True, status=200)
    assert lists.problem() == ""


@pytest.mark.parametrize(
    ("path", "watches", "status"),
    [
        (PODS.format("shop"), False, 200),
        (PODS.format("shop"), True, 403),
        (PODS.format("other"), True, 200),
        ("/api/v1/namespaces/shop/pods/orders-0-0-0", True, 200),
        ("/api/v1/namespaces/shop/services", True, 200),
    ],
)
def test_nothing_but_an_accepted_watch_counts(path: str, watches: bool, status: int) -> None:
    lists = FirstLists(["pods"], ["shop"])
    lists.note(path, watches=watches, status=status)
    assert lists.problem() == "not listed yet: pods"
