"""Lives of clusters under an operator that is killed, misled and refused end as any other life.

The lives are lived at the same time, each in a namespace of its own, beside one that nobody
disturbs; then their ends are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from tests.kube.misbehaving_api import API_SECONDS, BadAnswers, BadWatches
from tests.support.common.polling import SCALE
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.kube_lab.proxy import MisbehavingProxy
from tests.support.operator.masters_watch import MastersWatch
from tests.support.operator.operator_killer import OperatorKiller, witnessed_operator
from tests.support.operator.operator_process import OperatorProcess, operator_identity
from tests.support.operator.scripted_clusters import SCRIPTS, Change, Life, differences

pytestmark = [pytest.mark.long, pytest.mark.soak]

PAIRS = ("orders-0", "stock-0", "stock-1", "ledger-0")
LIFE_SECONDS = 600.0
WAIT_SCALE = 0.15
RESYNC_SECONDS = "10"
Scripts = Mapping[str, tuple[Change, ...]]


@dataclass
class Lived:
    """A life, what disturbs it, and how it failed if it did."""

    life: Life
    proxy: MisbehavingProxy
    running: OperatorProcess | None = None
    """The operator, if it must not end by itself."""
    disturb: Callable[[], object] = lambda: None
    error: AssertionError | None = None

    def step(self) -> bool:
        """Live on; tell whether it is over."""
        if self.life.over or self.error is not None:
            return True
        try:
            if self.running is not None:
                process = self.running.process
                assert process.alive, process.errors()[-4000:]
            self.disturb()
            self.life.step()
        except AssertionError as error:
            self.error = error
        return self.life.over


def live(lives: list[Lived], seconds: float) -> None:
    """Let all of them live to their ends."""
    for lived in lives:
        lived.life.begin()
    deadline = time.monotonic() + seconds * SCALE
    while {lived.step() for lived in lives} != {True}:
        if time.monotonic() > deadline:
            for lived in lives:
                lived.error = lived.error or AssertionError(lived.life.where())
        time.sleep(0.2)


@contextmanager
def namespace_behind_proxy(
    control_plane: ControlPlane,
) -> Iterator[tuple[Namespace, MisbehavingProxy]]:
    """Yield a namespace and a proxy for its operator."""
    namespace, proxy = Namespace(control_plane), MisbehavingProxy(control_plane)
    proxy.start()
    try:
        yield namespace, proxy
    finally:
        proxy.stop()
        namespace.clean_up()


@contextmanager
def undisturbed(control_plane: ControlPlane, wait_scale: float = WAIT_SCALE) -> Iterator[Lived]:
    """Prepare a life that nobody disturbs."""
    with misbehaving(control_plane, SCRIPTS, wait_scale) as lived:
        yield lived


@contextmanager
def misbehaving(
    control_plane: ControlPlane, scripts: Scripts, wait_scale: float = WAIT_SCALE
) -> Iterator[Lived]:
    """Prepare a life with an API server that will misbehave."""
    with namespace_behind_proxy(control_plane) as (namespace, proxy):
        identity = operator_identity(namespace, server=proxy.url)
        seconds = f"{API_SECONDS:g}"
        running = witnessed_operator(
            namespace,
            identity,
            wait_scale,
            FAILBACK_API_TIMEOUT_SECONDS=seconds,
            FAILBACK_RESYNC_SECONDS=RESYNC_SECONDS,
        )
        try:
            running.start()
            yield Lived(Life(namespace, scripts), proxy, running)
        finally:
            running.process.dispose()


@contextmanager
def killed(
    control_plane: ControlPlane,
    *,
    seed: int,
    share: float,
    most: int,
    wait_scale: float = WAIT_SCALE,
) -> Iterator[tuple[Lived, OperatorKiller, MastersWatch]]:
    """Prepare a life whose operator is killed, with the masters of pairs watched."""
    with namespace_behind_proxy(control_plane) as (namespace, proxy):
        life = Life(namespace)
        killer = OperatorKiller(life, proxy, seed=seed, share=share, most=most)
        identity = operator_identity(namespace, server=proxy.url)
        victim = killer.operator(namespace, identity, wait_scale)
        try:
            victim.start()
            with MastersWatch(namespace.name, PAIRS) as masters:
                yield Lived(life, proxy, disturb=killer.revive), killer, masters
        finally:
            killer.close()
            victim.process.dispose()


@dataclass
class Ends:
    """All that was lived."""

    reference: Lived
    killed: Lived
    killer: OperatorKiller
    masters: MastersWatch
    misled: Lived
    watches: BadWatches
    refused: Lived
    answers: BadAnswers


@pytest.fixture(scope="module")
def ends(control_plane: ControlPlane, node: NodeProcess) -> Iterator[Ends]:
    with ExitStack() as stack:
        reference = stack.enter_context(undisturbed(control_plane))
        victim, killer, masters = stack.enter_context(
            killed(control_plane, seed=1, share=0.25, most=2)
        )
        misled = stack.enter_context(
            misbehaving(control_plane, {"orders": SCRIPTS["orders"][:3], "stock": SCRIPTS["stock"]})
        )
        refused = stack.enter_context(misbehaving(control_plane, {"orders": SCRIPTS["orders"]}))
        watches, answers = BadWatches(misled.proxy, seed=2), BadAnswers(refused.proxy, seed=3)
        misled.disturb, refused.disturb = watches.step, answers.step
        live([reference, victim, misled, refused], LIFE_SECONDS)
        print(killer.kills, [one.life.seconds for one in (reference, victim, misled, refused)])
        yield Ends(reference, victim, killer, masters, misled, watches, refused, answers)


def check_same(disturbed: Lived, reference: Lived) -> None:
    """Hold the ends of a life against those of another that may have had more changes."""
    for lived in (reference, disturbed):
        if lived.error is not None:
            raise lived.error
    for key, end in disturbed.life.ends.items():
        different = differences(end, reference.life.ends[key])
        assert different == [], key
    for pod, uids in disturbed.life.pods.items():
        owner = pod.partition("-")[0]
        ends = [life.scripts.get(owner, ())[-1:] for life in (disturbed.life, reference.life)]
        if ends[0] == ends[1] and (pod in reference.life.pods or not is_of_job(pod)):
            assert len(uids) == len(reference.life.pods[pod]), f"restarts of {pod}"


def is_of_job(pod: str) -> bool:
    """Tell whether a pod's name is drawn: others have the number of a replica at its end."""
    return not pod.rpartition("-")[2].isdigit()


def test_kills_after_writes_and_orders_change_nothing_in_the_end(ends: Ends) -> None:
    check_same(ends.killed, ends.reference)
    survived = {(kill.cluster, kill.change) for kill in ends.killer.kills}
    for cluster, changes in SCRIPTS.items():
        for change in changes:
            assert (cluster, change.name) in survived, "a change without a kill"
    assert {kill.what for kill in ends.killer.kills} >= {"order 17", "order 25"}


def test_there_are_never_two_masters(ends: Ends) -> None:
    assert ends.masters.doubles == []
    assert ends.masters.rounds > 100
    assert [len(ends.masters.seen[name]) for name in PAIRS] == [1, 1, 1, 2], "the role was switched"


def test_lost_doubled_and_late_events_change_nothing_in_the_end(ends: Ends) -> None:
    check_same(ends.misled, ends.reference)
    assert ends.watches.expired >= 3


def test_refusals_and_silence_change_nothing_in_the_end(ends: Ends) -> None:
    check_same(ends.refused, ends.reference)
    assert ends.answers.hits() >= {"409", "429", "500", "timeout"}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("seed", "share", "wait_scale"),
    [(0, 1.0, WAIT_SCALE), *((seed, 0.3, WAIT_SCALE) for seed in range(2, 6)), (6, 0.1, 1.0)],
)
def test_many_more_kills_change_nothing_in_the_end(
    control_plane: ControlPlane, node: NodeProcess, seed: int, share: float, wait_scale: float
) -> None:
    """A share of 1 kills after every single write and order."""
    killing = killed(control_plane, seed=seed, share=share, most=1000, wait_scale=wait_scale)
    with (
        undisturbed(control_plane, wait_scale) as reference,
        killing as (victim, killer, masters),
    ):
        live([reference, victim], 6 * LIFE_SECONDS)
    check_same(victim, reference)
    assert masters.doubles == []
    assert len(killer.kills) >= (100 if share == 1 else 10)
