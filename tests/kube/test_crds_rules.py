"""The API server and this process refuse the same objects, in the same words."""

from __future__ import annotations

import json
import re

import pytest

from failback.kube.resources import RESOURCES
from failback.operator.schema.decoding import KINDS
from tests.support.kube_lab.api import ApiError
from tests.support.kube_lab.namespaces import Namespace
from tests.support.operator.enumerations import ALL, document
from tests.support.operator.hostile_values import documents
from tests.support.operator.rule_cases import CASES, Case, validate

EVERY = 7
"""Of so many values one is asked of the API server; locally all are tried."""
Told = set[tuple[str, str]]


def ours(case: Case) -> Told:
    old = None if case.old is None else case.document(case.old)
    return {(each.path, each.message) for each in validate(case.kind, case.document(case.new), old)}


def asked(namespace: Namespace, case: Case) -> Told:
    """Return path and message of everything that the API server refuses about the case."""
    folder = f"/apis/failback.dev/v1alpha1/namespaces/{namespace.name}/{RESOURCES[case.kind][2]}"
    new = case.document(case.new, namespace.name)
    verb, path = "POST", folder
    if case.old is not None:
        stored = namespace.api.create(case.document(case.old, namespace.name))
        new["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        verb, path = "PUT", f"{folder}/{case.name}"
    try:
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        namespace.api.request(verb, path, new, query=query)
    except ApiError as refusal:
        if refusal.reason != "Invalid":
            raise
        return {
            (
                "" if cause["field"] == "<nil>" else cause["field"],
                re.sub(r'^Invalid value: ("object": )?', "", cause["message"]),
            )
            for cause in refusal.status["details"]["causes"]
        }
    return set()


def test_both_give_the_same_verdicts_in_the_same_words(namespace: Namespace) -> None:
    differing = {}
    for case in CASES:
        here, there = ours(case), asked(namespace, case)
        # What the schema refuses has the server's own words.
        same = bool(here) == bool(there) if "schema" in case.rules else here == there
        if not same:
            differing[str(case)] = {"here": here, "server": there}
    assert differing == {}


def test_the_word_of_the_server_names_object_path_and_rule(namespace: Namespace) -> None:
    with pytest.raises(ApiError) as refused:
        namespace.api.create(
            {
                "apiVersion": "failback.dev/v1alpha1",
                "kind": "BrokerCluster",
                "metadata": {"name": "orders"},
                "spec": {
                    "nameServerRef": {"name": "main"},
                    "masterRole": "SYNC_MASTER",
                    "slavesPerPair": 0,
                },
            }
        )
    assert refused.value.message == (
        'BrokerCluster.failback.dev "orders" is invalid: spec: Invalid value:'
        " SYNC_MASTER needs a slave"
    )


def test_every_word_is_taken_in_one_spelling(namespace: Namespace) -> None:
    differing = {}
    # The schema can't say what drainMaster is: a union of a word and a truth value.
    named = [each for each in ALL if each[2][0][:1].isalpha() and "drainMaster" not in each[1]]
    for kind, path, words in named:
        folder = f"/apis/failback.dev/v1alpha1/namespaces/{namespace.name}/{RESOURCES[kind][2]}"
        other = words[0].swapcase()
        for word in (*words, other):
            made = document(kind, path, word)
            made["metadata"]["namespace"] = namespace.name
            try:
                namespace.api.request("POST", folder, made, query={"dryRun": "All"})
            except ApiError as refusal:
                told = str(refusal)
            else:
                told = ""
            # A rule may refuse a right word for a field that it needs beside it.
            spelling = "Unsupported value" in told
            if spelling != (word == other) or (spelling and words[0] not in told):
                differing[kind, path, word] = told
    assert differing == {}
    assert len(named) >= 30


@pytest.mark.soak
def test_every_field_is_refused_by_both_or_by_neither(namespace: Namespace) -> None:
    differing, tried = {}, 0
    for kind in KINDS:
        folder = f"/apis/failback.dev/v1alpha1/namespaces/{namespace.name}/{RESOURCES[kind][2]}"
        for path, value, made in list(documents(kind))[::EVERY]:
            if path.endswith(("drainMaster", "expect[].value")):
                continue  # unions, of which the schema can say nothing
            if value is None:
                continue  # the API server takes it for a field that is left out
            tried += 1
            made["metadata"]["namespace"] = namespace.name
            here = [str(each) for each in validate(kind, made)]
            try:
                query = {"dryRun": "All", "fieldValidation": "Strict"}
                namespace.api.request("POST", folder, made, query=query)
            except ApiError as refusal:
                there = str(refusal)
            else:
                there = ""
            if bool(here) != bool(there):
                differing[kind, path, repr(value)[:40]] = (here[:1], there[-200:])
    assert differing == {}, json.dumps(
        {str(key): each for key, each in differing.items()}, indent=1
    )
    assert tried > 1000
