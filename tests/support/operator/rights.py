"""Rights of RBAC rules, one by one, and which of them requests needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy

from tests.support.kube_lab.api import Object
from tests.support.kube_lab.audit import Write

Right = tuple[str, str, str]
"""API group, resource with its subresource, verb."""


def rights_of(rules: Iterable[Object]) -> set[Right]:
    """Return what rules allow."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def without(rules: Iterable[Object], right: Right) -> list[Object]:
    """Return the rules less one right."""
    return [
        {**part, "verbs": verbs}
        for rule in rules
        for part in _single(rule)
        if (verbs := [verb for verb in part["verbs"] if not _is(right, part, verb)])
    ]


def asked(requests: Iterable[Write]) -> set[Right]:
    """Return the rights that requests needed.

    An apply that makes an object needs the right to create it, beside the one to patch.
    """
    found: set[Right] = set()
    for each in requests:
        found.add((each.group, each.resource, each.verb))
        if each.verb == "patch" and each.code == 201:
            found.add((each.group, each.resource, "create"))
    return found


def _single(rule: Object) -> Iterator[Object]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            yield {**deepcopy(rule), "apiGroups": [group], "resources": [resource]}


def _is(right: Right, rule: Object, verb: str) -> bool:
    return right == (rule["apiGroups"][0], rule["resources"][0], verb)
