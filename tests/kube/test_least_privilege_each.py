"""An operator that lacks one right of the chart's Role says so, and works on as soon as it has it.

Many namespaces of one control plane at the same time, each with an operator less one right.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.kube.missing_right import forfeit
from tests.kube.rights_in_use import ERRANDS
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import chart_rules
from tests.support.operator.optional_kinds import SETTINGS, optional_kinds
from tests.support.operator.rights import Right, rights_of

pytestmark = pytest.mark.kube

AT_A_TIME = 6
SEED = 4
PER_VERB = 2


@pytest.fixture(scope="module")
def optional(control_plane: ControlPlane) -> Iterator[None]:
    """The kinds of others that the operator may make objects of."""
    with optional_kinds(control_plane):
        yield


def sample() -> list[Right]:
    """Return some rights of every verb, drawn by a seed."""
    by_verb = defaultdict(list)
    for right in sorted(ERRANDS):
        by_verb[right[2]].append(right)
    generator = random.Random(SEED)
    return [
        right
        for rights in by_verb.values()
        for right in generator.sample(rights, min(PER_VERB, len(rights)))
    ]


def failures(control_plane: ControlPlane, rights: Iterable[Right]) -> list[str]:
    """Let one operator live without each right; return what went otherwise than it should.

    Those that need real brokers begin first: they last longest.
    """
    ordered = sorted(rights, key=lambda right: ERRANDS[right].pretended)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return [text for text in pool.map(partial(failure, control_plane), ordered) if text]


def failure(control_plane: ControlPlane, right: Right) -> str:
    """Return how an operator that lacks a right failed to fail; empty when it did not."""
    begun = time.monotonic()
    try:
        forfeit(control_plane, right, ERRANDS[right])
    except Exception as error:  # the others are to be heard, too
        return f"{right}: {error!r}"
    finally:
        print(f"{right}: {time.monotonic() - begun:.0f} s", flush=True)
    return ""


def test_there_is_an_errand_for_each_right_of_the_chart(namespace: Namespace) -> None:
    given = rights_of(chart_rules(namespace, *SETTINGS))
    assert set(ERRANDS) == given


def test_without_a_right_the_operator_says_so_and_gets_no_further(
    control_plane: ControlPlane, node: NodeProcess, optional: None
) -> None:
    assert failures(control_plane, sample()) == []


@pytest.mark.soak
def test_without_any_right_the_operator_says_so_and_gets_no_further(
    control_plane: ControlPlane, node: NodeProcess, optional: None
) -> None:
    assert failures(control_plane, set(ERRANDS) - set(sample())) == []
