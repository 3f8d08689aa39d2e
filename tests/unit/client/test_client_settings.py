"""Settings: defaults of the reference, one scale for all intervals, plain values for run.json."""

from __future__ import annotations

import json
import random

import pytest

from failback.client.remoting.settings import ClientSettings
from failback.protocol.errors import ConfigError


def test_time_scale_multiplies_every_interval_and_nothing_else() -> None:
    plain = ClientSettings()
    scaled = ClientSettings(time_scale=0.1).scaled()
    before, after = plain.to_dict(), scaled.to_dict()
    for name, value in before.items():
        if name.endswith("_ms") and value is not None:
            assert after[name] == pytest.approx(value * 0.1), name
        else:
            assert after[name] == value, name


def test_the_record_for_a_run_is_json_with_every_switch() -> None:
    record = json.loads(json.dumps(ClientSettings().to_dict()))
    switches = {
        "fail_inflight_on_eof": False,
        "strict_single_thread": True,
        "offset_broker_rule": "master_first_refresh",
        "ref_bugs": True,
        "slave_behind_backoff_ms": 0,
        "drain_on_shutdown_ms": 0,
        "ack_commits": False,
        "heartbeat_on_connect": False,
        "monotonic_start": False,
        "time_scale": 1.0,
    }
    assert switches.items() <= record.items()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pull_timeout_ms", -1),
        ("time_scale", 0),
        ("pull_batch_size", 0),
        ("consume_threads", 0),
        ("pull_threshold_for_queue", 65_536),
        ("offset_broker_rule", "nearest"),
    ],
)
def test_a_bad_value_names_its_field(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=field):
        ClientSettings(**{field: value})  # type: ignore[arg-type]


def test_a_start_phase_is_drawn_once_where_none_is_given() -> None:
    drawn = ClientSettings(start_phase_ms=None).with_phase(random.Random(7)).start_phase_ms
    assert drawn is not None
    assert 0 <= drawn <= 30_000
    assert ClientSettings(start_phase_ms=5).with_phase(random.Random(7)).start_phase_ms == 5
