"""Who is hit: deterministic, and never a broker that does not run."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.chaos.cluster.view import ClusterView, Member, Pair, ProcessIdentity, Role
from failback.chaos.errors import GuardRefused
from failback.chaos.faults.victims import amount_of, choose


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


pair_names = st.sampled_from(["*", "pair-0", "pair-1", "pair-9", "pair-[01]"])


@given(views(), pair_names, st.sampled_from(["master", "slave"]), st.integers(0, 2**64 - 1))
def test_choice_is_a_function_of_view_name_role_and_seed(
    seen: ClusterView, pair: str, role: Role, seed: int
) -> None:
    def attempt(of: ClusterView) -> Member | str:
        try:
            return choose(of, pair, role, seed)
        except GuardRefused as error:
            return error.guard

    chosen = attempt(seen)
    turned = view(
        *(Pair(pair.name, pair.broker_name, pair.members[::-1]) for pair in reversed(seen.pairs))
    )
    assert attempt(turned) == chosen
    if isinstance(chosen, str):
        return
    assert chosen.running
    assert chosen.role == role
    assert fnmatchcase(chosen.pair, pair)


@given(st.integers(1, 9), st.integers(0, 2**32))
def test_modes_take_as_many_as_they_say(running: int, seed: int) -> None:
    assert amount_of("one", 0, running, seed) == 1
    assert amount_of("all", 0, running, seed) == running
    assert amount_of("fixed", 2, running, seed) == min(2, running)
    assert amount_of("fixed-percent", 50, running, seed) == max(1, running // 2)
    assert 1 <= amount_of("random-max-percent", 50, running, seed) <= max(1, running // 2)


def test_seed_decides_between_equals() -> None:
    seen = view(Pair("p", "p", tuple(member("p", n) for n in range(4))))
    chosen = {choose(seen, "*", "slave", seed).ordinal for seed in range(40)}
    assert chosen == {0, 1, 2, 3}


def test_two_masters_are_refused_and_none_is_picked() -> None:
    seen = view(Pair("p", "p", (member("p", 0, "master"), member("p", 1, "master"))))
    with pytest.raises(GuardRefused, match=r"RolesConsistent: pair p has two masters: p-0, p-1"):
        choose(seen, "p", "master", 1)


def test_a_name_server_that_disagrees_is_refused() -> None:
    seen = view(Pair("p", "p", (member("p", 0, "master"),)), conflicts=("ns shows another",))
    with pytest.raises(GuardRefused, match="RolesConsistent: ns shows another"):
        choose(seen, "p", "master", 1)


def test_a_victim_that_is_down_already_is_refused() -> None:
    seen = view(Pair("p", "p", (member("p", 0, "master", running=False), member("p", 1))))
    with pytest.raises(GuardRefused, match="TARGET_ALREADY_DOWN: p-0 is not running"):
        choose(seen, "p", "master", 1)


def test_no_match_says_what_was_looked_for() -> None:
    seen = view(Pair("p", "p", (member("p", 0, "master"),)))
    said = "TargetMatches: no broker matches pair=q role=master mode=one"
    with pytest.raises(GuardRefused, match=said):
        choose(seen, "q", "master", 1)
