"""Who is hit: deterministic, never a broker that does not run, never more pairs than allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.chaos.cluster.view import ClusterView, Member, Pair, ProcessIdentity, Role
from failback.chaos.errors import GuardRefused
from failback.chaos.faults.victims import Mode, NoTarget, Selector, choose

MODES: tuple[Mode, ...] = ("one", "all", "fixed", "fixed-percent", "random-max-percent")


def member(pair: str, ordinal: int, role: Role = "slave", running: bool = True) -> Member:
    return Member(
        pair=pair,
        ordinal=ordinal,
        pod=f"{pair}-{ordinal}",
        broker_name=pair,
        broker_id=0 if role == "master" else ordinal,
        role=role,
        address=f"127.0.0.{ordinal + 1}:10911",
        running=running,
        identity=ProcessIdentity(f"{pair}-{ordinal}", 100 + ordinal, 7, 1) if running else None,
    )


def view(*pairs: Pair, conflicts: tuple[str, ...] = ()) -> ClusterView:
    return ClusterView("demo", "lab", "failback", ("127.0.0.1:9876",), pairs, conflicts)


@st.composite
def views(draw: st.DrawFn) -> ClusterView:
    pairs = []
    for number in range(draw(st.integers(1, 4))):
        name = f"pair-{number}"
        members = [
            member(name, ordinal, "master" if ordinal == 0 else "slave", draw(st.booleans()))
            for ordinal in range(draw(st.integers(1, 4)))
        ]
        pairs.append(Pair(name, name, tuple(members)))
    return view(*pairs)


selectors = st.builds(
    Selector,
    pair=st.sampled_from(["", "pair-0", "pair-1", "pair-9"]),
    pair_selector=st.sampled_from(["", "*", "pair-[01]"]),
    role=st.sampled_from(["master", "slave", None]),
    mode=st.sampled_from(MODES),
    value=st.integers(1, 120),
)


@given(views(), selectors, st.integers(0, 2**64 - 1), st.integers(1, 3))
def test_choice_is_a_function_of_view_selector_and_seed(
    seen: ClusterView, selector: Selector, seed: int, limit: int
) -> None:
    def attempt(of: ClusterView) -> tuple[Member, ...] | str:
        try:
            return choose(of, selector, seed, limit)
        except GuardRefused as error:
            return error.guard

    chosen = attempt(seen)
    turned = view(
        *(Pair(pair.name, pair.broker_name, pair.members[::-1]) for pair in reversed(seen.pairs))
    )
    assert attempt(turned) == chosen
    if isinstance(chosen, str):
        return
    assert all(each.running for each in chosen)
    assert len(set(chosen)) == len(chosen) >= 1
    assert len({each.pair for each in chosen}) <= limit
    assert all(selector.role in (None, each.role) for each in chosen)
    if selector.pair:
        assert {each.pair for each in chosen} == {selector.pair}


@given(views(), st.integers(0, 2**32))
def test_modes_take_as_many_as_they_say(seen: ClusterView, seed: int) -> None:
    running = [each for each in seen.members if each.running]
    if not running:
        return

    def amount(mode: Mode, value: float = 0) -> int:
        chosen = choose(seen, Selector(role=None, mode=mode, value=value), seed, 99)
        return len(chosen)

    assert amount("one") == 1
    assert amount("all") == len(running)
    assert amount("fixed", 2) == min(2, len(running))
    assert amount("fixed-percent", 50) == max(1, len(running) // 2)
    assert 1 <= amount("random-max-percent", 50) <= max(1, len(running) // 2)


def test_seed_decides_between_equals() -> None:
    seen = view(Pair("p", "p", tuple(member("p", n) for n in range(4))))
    chosen = {choose(seen, Selector(role="slave"), seed)[0].ordinal for seed in range(40)}
    assert chosen == {0, 1, 2, 3}


def test_two_masters_are_refused_and_none_is_picked() -> None:
    seen = view(Pair("p", "p", (member("p", 0, "master"), member("p", 1, "master"))))
    with pytest.raises(GuardRefused, match=r"RolesConsistent: pair p has two masters: p-0, p-1"):
        choose(seen, Selector(pair="p"), 1)


def test_a_name_server_that_disagrees_is_refused() -> None:
    seen = view(Pair("p", "p", (member("p", 0, "master"),)), conflicts=("ns shows another",))
    with pytest.raises(GuardRefused, match="RolesConsistent: ns shows another"):
        choose(seen, Selector(pair="p"), 1)


def test_a_victim_that_is_down_already_is_refused() -> None:
    seen = view(Pair("p", "p", (member("p", 0, "master", running=False), member("p", 1))))
    with pytest.raises(GuardRefused, match="TARGET_ALREADY_DOWN: p-0 is not running"):
        choose(seen, Selector(pair="p"), 1)


def test_no_match_says_what_was_looked_for() -> None:
    seen = view(Pair("p", "p", (member("p", 0, "master"),)))
    with pytest.raises(NoTarget, match="no broker matches pair=q role=master mode=one"):
        choose(seen, Selector(pair="q"), 1)
