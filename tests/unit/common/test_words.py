"""Numbers and reasons as people read them: one format everywhere."""

from __future__ import annotations

import errno
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.common import numbers
from failback.common.text import why


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (numbers.count(2400), "2,400"),
        (numbers.count(0), "0"),
        (numbers.count(None), "-"),
        (numbers.percent(0.60282), "60.3 %"),
        (numbers.percent(0), "0.0 %"),
        (numbers.percent(0.0001), "< 0.1 %"),
        (numbers.percent(0.99999), "> 99.9 %"),
        (numbers.percent(1), "100.0 %"),
        (numbers.percent(None), "-"),
        (numbers.seconds(6.19131), "6.2 s"),
        (numbers.seconds(312.4), "312 s"),
        (numbers.seconds(0.012), "12 ms"),
        (numbers.seconds(0), "0.0 s"),
        (numbers.milliseconds(6600), "6.6 s"),
        (numbers.milliseconds(None), "-"),
        (numbers.size(17), "17 B"),
        (numbers.size(82_837_504), "79.0 MiB"),
        (numbers.size(3 << 50), "3,072.0 TiB"),
        (numbers.counted(1, "run"), "1 run"),
        (numbers.counted(2000, "run"), "2,000 runs"),
        (numbers.counted(2, "query", "queries"), "2 queries"),
    ],
)
def test_a_number_has_one_format(said: str, shown: str) -> None:
    assert said == shown


@given(st.floats(0, 1))
def test_some_is_never_shown_as_none_nor_almost_all_as_all(share: float) -> None:
    shown = numbers.percent(share)
    assert (shown == "0.0 %") == (share == 0)
    assert (shown == "100.0 %") == (share == 1)


def test_no_error_of_the_system_shows_its_number_or_its_name() -> None:
    for number, name in errno.errorcode.items():
        shown = why(OSError(number, os.strerror(number), "/some/path"))
        assert shown, name
        assert "Errno" not in shown
        assert "/some/path" not in shown
        assert name not in shown


def test_a_connection_that_several_addresses_refused_is_refused() -> None:
    text = "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect"
    assert why(OSError(text)) == "connection refused"


def test_a_file_that_is_none_of_its_kind_is_told_with_the_place() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{\n")
    assert why(caught.value) == "is not JSON: line 2, column 1"
    with pytest.raises(UnicodeDecodeError) as cut:
        b"ok\xff".decode()
    assert why(cut.value) == "is not UTF-8 text (byte 2)"
