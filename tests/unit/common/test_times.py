"""A time without a zone is one instant for every option, and it is said which."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from failback.analytics.run.definitions import instant_ns
from failback.cli.shared.asking import meant_time
from failback.common.times import meant, read_ms

NOON_UTC_MS = 1_795_867_200_000
"""2026-11-28T12:00:00Z."""


@pytest.fixture(params=["Asia/Shanghai", "UTC", "America/New_York"])
def hours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """How many hours the zone of this machine is before UTC."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield {"Asia/Shanghai": 8, "UTC": 0, "America/New_York": -5}[request.param]
    monkeypatch.undo()
    time.tzset()


def test_all_readers_take_a_text_alike(hours: int, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"2026-11-28T{12 + hours:02d}:00:00"
    assert read_ms(text) == NOON_UTC_MS
    assert instant_ns(text, NOON_UTC_MS * 1_000_000) == 0
    assert meant_time(text, "--since", yes=True) == NOON_UTC_MS
    zone = f"{hours:+03d}:00"
    assert capsys.readouterr().err == f"--since {text} is {text}{zone}\n"


@pytest.mark.parametrize("text", ["2026-11-28T12:00:00Z", "1795867200000", "now", "noon", ""])
def test_what_is_no_time_without_a_zone_needs_no_words(text: str) -> None:
    assert meant(text) == ""
