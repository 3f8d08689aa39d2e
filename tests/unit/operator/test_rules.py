"""The CEL rules, evaluated in this process: one table of objects, which the API server gets too."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from failback.operator.schema.cel import rules_of
from failback.operator.schema.decoding import KINDS
from failback.operator.schema.rules import Violation
from tests.support.operator.rule_cases import CASES, Case, validate


def broken(case: Case) -> list[Violation]:
    old = None if case.old is None else case.document(case.old)
    return validate(case.kind, case.document(case.new), old)


def of_cluster(**spec: Any) -> list[Violation]:
    spec = {"nameServerRef": {"name": "main"}, **spec}
    return validate("BrokerCluster", {"metadata": {"name": "orders"}, "spec": spec})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_case_breaks_the_rules_it_names(case: Case) -> None:
    assert {each.rule for each in broken(case)} == set(case.rules)


@pytest.mark.parametrize("kind", KINDS)
def test_every_rule_of_a_kind_has_an_object_that_breaks_it_and_one_that_does_not(kind: str) -> None:
    told = {
        (each.rule, re.sub(r"\[\d+\]", "[]", each.path), each.message)
        for case in CASES
        if case.kind == kind
        for each in broken(case)
    }
    untold = {(rule.id, rule.path, rule.message) for rule in rules_of(kind)} - told
    assert untold == set()
    assert any(case.kind == kind and not case.rules for case in CASES)


def test_a_rule_that_compares_is_not_asked_on_create() -> None:
    on_change = {
        (rule.id, rule.message) for kind in KINDS for rule in rules_of(kind) if rule.on_change
    }
    asked = {
        (each.rule, each.message) for case in CASES if case.old is None for each in broken(case)
    }
    assert on_change
    assert on_change & asked == set()


def test_a_violation_reads_as_conditions_show_it() -> None:
    (found,) = of_cluster(masterRole="SYNC_MASTER", slavesPerPair=0)
    assert str(found) == "BC6 spec: SYNC_MASTER needs a slave"


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        # a field or an entry without which the rule holds
        ({"nameServerAddresses": ["ns:9876"]}, ["spec.nameServerRef"]),
        ({"sync": {"inSyncReplicas": 3}}, ["spec.sync"]),
        ({"pairOverrides": [{"index": 0}, {"index": 1, "storageSize": "1Gi"}]},
         ["spec.pairOverrides[1]"]),
        # the first field of the rule, where none can be left out
        ({"masterRole": "SYNC_MASTER", "slavesPerPair": 0}, ["spec.masterRole"]),
        # each key of a map
        ({"config": {"brokerRole": "SLAVE", "brokerId": "1", "fileReservedTime": "48"}},
         ["spec.config.brokerRole", "spec.config.brokerId"]),
        ({"config": {"fileReservedTime": "soon"}}, ["spec.config.fileReservedTime"]),
    ],
)  # fmt: skip
def test_the_field_to_edit_is_named(spec: dict[str, Any], fields: list[str]) -> None:
    assert [each.field for each in of_cluster(**spec)] == fields


def test_a_text_is_as_long_as_its_characters() -> None:
    spec = {"clusterRef": {"name": "orders"}, "groupName": "ä" * 61}
    found = validate("SubscriptionGroup", {"metadata": {"name": "g"}, "spec": spec})
    assert [each.rule for each in found] == ["SG3"]


def test_the_library_is_loaded_without_its_command_line() -> None:
    code = (
        "import sys; from tests.unit.operator.test_rules import of_cluster;"
        " assert of_cluster() == []; assert 'prompt_toolkit' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
