"""Settings under RocketMQ's key names, and the mistakes that name them."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from failback.analytics.predict.keys import KEYS, parse_assignments
from failback.analytics.predict.settings import Settings
from failback.analytics.predict.timers import last_tick, next_tick, since_tick
from failback.protocol.errors import ConfigError


def test_every_setting_has_a_key_and_every_key_its_default() -> None:
    named = {key.field for key in KEYS.values()} | {"constants", "slave_copies_offsets"}
    assert named == {field.name for field in fields(Settings)}
    assert Settings().with_values(Settings().to_dict()) == Settings()


def test_values_come_as_text_and_symbols_in_seconds() -> None:
    found = Settings().with_values(
        {"flushConsumerOffsetInterval": "1000", "I_c": "2", "members": "4", "backlog": "none"}
    )
    assert found.flush_consumer_offset_interval == 1000
    assert found.persist_consumer_offset_interval == 2000
    assert found.members == 4
    assert found.backlog is None


def test_guarded_rules_are_all_guards() -> None:
    guarded = Settings().with_values({"failbackRules": "guarded"})
    assert all(guarded.to_dict()[name] for name, key in KEYS.items() if key.kind == "flag")
    assert guarded.with_values({"failbackRules": "compat"}) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("flushConsumerOfsetInterval", "1", 'did you mean "flushConsumerOffsetInterval"'),
        ("flushConsumerOffsetInterval", "0", "must be between 1 and 8.64e+07 ms, got 0"),
        ("members", "1.5", "members: must be a whole number, got 1.5"),
        ("members", "many", 'members: must be a number, got "many"'),
        ("rate", "nan", "rate: must be between"),
        ("rate", True, 'rate: must be a number, got "True"'),
        ("failbackGuardConsumerList", "yes", 'must be true or false, got "yes"'),
        ("failbackRules", "strict", 'must be compat or guarded, got "strict"'),
        ("peakRate", "1", "peakRate: must be at least the consume rate, 400/s, got 1"),
    ],
)
def test_a_mistake_names_the_key(name: str, value: object, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Settings().with_values({name: value})
    assert told in str(refused.value)
    assert str(refused.value).startswith(name)


def test_assignments_are_key_and_value() -> None:
    assert parse_assignments(["a=1", "b = x=y"]) == {"a": "1", "b": "x=y"}
    with pytest.raises(ConfigError, match='--set: must be KEY=VALUE, got "members"'):
        parse_assignments(["members"])


def test_the_time_scale_multiplies_timers_and_nothing_else() -> None:
    scaled = Settings(time_scale=0.1, handler_ms=8, client_uptime_seconds=20).scaled()
    assert scaled.flush_consumer_offset_interval == 500
    assert scaled.client_uptime_seconds == 2
    assert (scaled.handler_ms, scaled.rate, scaled.constants, scaled.time_scale) == (8, 400, 0.1, 1)
    assert scaled.scaled() is scaled


def test_ticks_are_those_of_a_timer_that_is_counted() -> None:
    age, first, period = 23.4, 10.0, 5.0
    ticks = [first + period * number - age for number in range(20)]
    for at in (-5.0, 0.0, 1.6, 1.7, 33.3):
        after = min(tick for tick in ticks if tick >= at - 1e-9)
        before = max(tick for tick in ticks if tick <= at + 1e-9)
        ages = np.array([age])
        assert next_tick(ages, first, period, at)[0] == pytest.approx(after)
        assert last_tick(ages, first, period, at)[0] == pytest.approx(before)
    assert since_tick(np.array([age, 4.0]), first, period) == pytest.approx([3.4, 4.0])
    assert last_tick(np.array([4.0]), first, period, 0.0)[0] == -np.inf
    assert next_tick(np.array([4.0]), first, period, 0.0)[0] == 6.0
