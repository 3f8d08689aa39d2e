"""The Python twins of the CEL rules: one table of objects, which the API server gets as well."""

from __future__ import annotations

import re

import pytest

from failback.operator.schema.cel import RULES, rules_of
from failback.operator.schema.decoding import KINDS, validate
from failback.operator.schema.rules import Violation
from tests.support.operator.rule_cases import CASES, Case


def broken(case: Case) -> list[Violation]:
    old = None if case.old is None else case.document(case.old)
    return validate(case.kind, case.document(case.new), old)


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
    on_change = {(rule.id, rule.message) for rule in RULES if rule.on_change}
    asked = {
        (each.rule, each.message) for case in CASES if case.old is None for each in broken(case)
    }
    assert on_change
    assert on_change & asked == set()


def test_a_violation_reads_as_conditions_show_it() -> None:
    (found,) = validate(
        "BrokerCluster",
        {
            "metadata": {"name": "orders"},
            "spec": {
                "nameServerRef": {"name": "main"},
                "masterRole": "SYNC_MASTER",
                "slavesPerPair": 0,
            },
        },
    )
    assert str(found) == "BC6 spec: SYNC_MASTER needs a slave"
