"""Who was registered as master of a pair over the last minute."""

from __future__ import annotations

from failback.operator.brokers.route_history import RouteHistory
from failback.operator.planning.observed.observed import Route

OLD, NEW, STRANGER = "10.0.0.1:10911", "10.0.0.2:10911", "10.9.9.9:10911"


def seen(*answers: tuple[float, str | None]) -> tuple[str, ...]:
    """Return the recent masters after a name server gave these answers at these times."""
    history = RouteHistory()
    for now, address in answers:
        brokers = {"orders-0": {} if address is None else {0: address}}
        history.note([Route("ns-0:9876", brokers)], {0: "orders-0"}, now)
    return history.recent_masters.get(0, ())


def test_an_address_that_comes_back_after_another_one_is_one_of_two() -> None:
    assert seen((0, OLD), (5, STRANGER)) == (STRANGER,)
    assert seen((0, OLD), (5, STRANGER), (10, OLD)) == (OLD, STRANGER)


def test_a_master_that_came_back_at_another_address_is_one() -> None:
    assert seen((0, OLD), (5, OLD), (10, None), (15, NEW), (20, NEW)) == (NEW,)


def test_what_left_is_forgotten_after_a_minute() -> None:
    alternating = ((0, OLD), (5, STRANGER), (10, OLD))
    assert seen(*alternating, (60, OLD)) == (OLD, STRANGER)
    assert seen(*alternating, (66, OLD)) == (OLD,)


def test_name_servers_that_differ_show_both() -> None:
    history = RouteHistory()
    routes = [
        Route("ns-0:9876", {"orders-0": {0: OLD}}),
        Route("ns-1:9876", {"orders-0": {0: NEW}}),
    ]
    history.note(routes, {0: "orders-0"}, 0.0)
    assert history.recent_masters == {0: (OLD, NEW)}
    assert history.master_since == {}
