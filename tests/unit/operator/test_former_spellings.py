"""Words of resources that 0.1 spelled otherwise: every enumeration of every kind, both ways."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from failback.chaos.experiment.model import Spec as HarnessSpec
from failback.chaos.experiment.raw_checks import former_spellings
from failback.chaos.experiment.reading import validate_fields
from failback.operator.planning.plan.added_warnings import warning_events, with_former_words
from failback.operator.schema.decoding import KINDS
from failback.operator.schema.former_rules import former_rules
from failback.protocol.words.formerly import former_words, present_words
from tests.support.docs.yaml_examples import ROOT
from tests.support.operator.enumerations import ALL, RENAMED, document

pytestmark = pytest.mark.foreign

CHART = ROOT / "charts/failback"
ROCKETMQ = frozenset(
    {"ASYNC_MASTER", "SYNC_MASTER", "ASYNC_FLUSH", "SYNC_FLUSH", "CLUSTERING", "BROADCASTING"}
    | {"compat", "guarded", "KILL", "TERM"}
)
"""What RocketMQ, broker.conf and the kernel call by these names."""


def held(kind: str, made: dict[str, Any], path: str) -> Any:
    """Return what the model of an object holds at a path."""
    node: Any = KINDS[kind].model_validate(made).model_dump(mode="json", by_alias=True)
    for part in path.split("."):
        node = node[part.removesuffix("[]")]
        node = node[0] if part.endswith("[]") else node
    return node


def test_every_enumeration_has_words_of_one_form() -> None:
    words = {word for _, _, enumeration in ALL for word in present_words(enumeration)}
    others = {word for word in words - ROCKETMQ if word[:1].isalpha() and not word[0].isupper()}
    assert others == set()
    assert len(RENAMED) > 60


@pytest.mark.parametrize(("kind", "path", "words"), ALL, ids=str)
def test_a_present_word_is_read_without_a_warning(kind: str, path: str, words: list[str]) -> None:
    for word in present_words(words):
        made = document(kind, path, word)
        assert held(kind, made, path) == word
        assert list(former_words(KINDS[kind], made)) == []


@pytest.mark.parametrize(("kind", "path", "old", "new"), RENAMED, ids=str)
def test_a_former_word_is_read_as_the_present_one_and_told(
    kind: str, path: str, old: str, new: str
) -> None:
    made = document(kind, path, old)
    assert held(kind, made, path) == new
    (former,) = former_words(KINDS[kind], made)
    at = path.replace("[]", "[0]")
    assert str(former) == f"{at}: {old} is spelled {new}, and not read from 0.3 on"
    status = with_former_words(made, {}, now=0.0)
    (condition,) = status["conditions"]
    told = (condition["type"], condition["status"], condition["reason"])
    assert told == ("Warning", "True", "FormerSpelling")
    assert f"{at}: {old}" in condition["message"]
    (event,) = warning_events({}, status)
    assert (event.reason, event.warning) == ("FormerSpelling", True)
    assert warning_events(status, status) == ()


@pytest.mark.parametrize(("kind", "path", "words"), ALL, ids=str)
def test_another_letter_case_is_refused_with_the_words_that_are_taken(
    kind: str, path: str, words: list[str]
) -> None:
    first = present_words(words)[0]
    other = first.swapcase() if first.swapcase() not in words else f"{first}X"
    if not first[:1].isalpha():
        return
    made = document(kind, path, other)
    with pytest.raises(ValueError, match=first):
        KINDS[kind].model_validate(made)


def test_a_pair_is_named_by_its_broker_name() -> None:
    at = "spec.faults[].target.pair"
    for kind, path, old in (
        ("RoleSwitch", "spec.pair", 1),
        ("ChaosExperiment", at, "pair-1"),
        ("ChaosExperiment", f"{at}Selector", "pair-1"),
    ):
        (former,) = former_words(KINDS[kind], document(kind, path, old))
        assert "PREFIX-1, the broker name" in str(former)
        assert list(former_words(KINDS[kind], document(kind, path, "orders-1"))) == []


def test_a_warning_of_another_kind_is_kept_and_a_settled_one_goes() -> None:
    old = document("BrokerCluster", "spec.storage.type", "persistent")
    said = {
        "type": "Warning",
        "status": "True",
        "reason": "MemberHeld",
        "message": "MemberHeld: orders-0-1 is held down",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    old["status"] = {"conditions": [said]}
    (both,) = with_former_words(old, {"conditions": [said]}, now=0.0)["conditions"]
    assert both["reason"] == "MemberHeld"
    assert both["message"].startswith("MemberHeld: orders-0-1 is held down; FormerSpelling: ")
    assert both["lastTransitionTime"] == said["lastTransitionTime"]
    new = document("BrokerCluster", "spec.storage.type", "Persistent")
    new["status"] = with_former_words(old | {"status": {}}, {}, now=0.0)
    (gone,) = with_former_words(new, new["status"], now=1.0)["conditions"]
    assert (gone["status"], gone["reason"]) == ("False", "None")


def test_the_chart_warns_of_every_word() -> None:
    committed = json.loads((CHART / "files/former-spellings.json").read_text())
    assert committed == former_rules(), "run: python tools/reference_pages.py"
    text = json.dumps(committed)
    for _, path, old, new in RENAMED:
        assert f"{new} (was {old})" in text
        assert f"{path}: write" in text


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [(path, old, new) for kind, path, old, new in RENAMED if kind == "ChaosExperiment"],
    ids=str,
)
def test_the_harness_reads_and_tells_the_same(path: str, old: str, new: str) -> None:
    told = []
    read = []
    for word in (old, new):
        made = document("ChaosExperiment", path, word)
        spec = made["spec"]
        read.append(validate_fields(HarnessSpec, copy.deepcopy(spec), "spec", None))
        told.append([str(each) for each in former_spellings(made)])
    assert read[0] == read[1]
    (sentence,) = former_words(KINDS["ChaosExperiment"], document("ChaosExperiment", path, old))
    assert told == [[str(sentence)], []]
