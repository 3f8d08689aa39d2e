"""A record that a client of the same version writes is read: traces, in every form of 4.9.8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.analytics.trace.records import TraceRecord, decode_body
from tests.support.analytics.trace_builder import (
    START_MS,
    TraceBuilder,
    after,
    before,
    made_id,
    pub,
    record,
)

pytestmark = pytest.mark.foreign

M1, M2 = made_id(9, 1), made_id(9, 2)
R1, R2 = made_id(1, 1), made_id(1, 2)


def cloud_end(message: str, request: str, *, success: bool = True) -> bytes:
    """A SubAfter of a client with access channel CLOUD."""
    whole = record("SubAfter", request, message, 5, success, "", 0 if success else 4)
    return whole.removesuffix(b"\x02") + b"\x01"


FORMS: dict[str, Callable[[int], bytes]] = {
    "send": lambda number: pub(made_id(2, number)),
    "send of older clients": lambda number: pub(made_id(2, number), offset_id=None),
    "begin": lambda number: before(made_id(2, number), number, made_id(3, number)),
    "begin without keys": lambda number: before(made_id(2, number), 1, made_id(3, 1), keys=None),
    "end": lambda number: after(made_id(2, number), number, made_id(3, number)),
    "end of CLOUD": lambda number: cloud_end(made_id(2, number), made_id(3, number)),
    "failed end of CLOUD": lambda number: cloud_end(M1, made_id(3, number), success=False),
    "end of older clients": lambda number: record("SubAfter", made_id(3, number), M1, 5, True),
    "end of a transaction": lambda number: record(
        "EndTransaction", START_MS, "r", "pg", "T", M1, "", "k", "h:1", 2, "t1", "COMMIT", False
    ),
}


def kinds(found: tuple[TraceRecord, ...]) -> list[str]:
    return [each.kind for each in found]


@given(forms=st.lists(st.sampled_from(sorted(FORMS)), min_size=1, max_size=12))
def test_every_row_of_records_is_read_whole(forms: list[str]) -> None:
    pieces = [FORMS[form](number) for number, form in enumerate(forms, 1)]
    decoded = decode_body(b"".join(pieces))
    assert decoded.damaged == ()
    alone = [kind for piece in pieces for kind in kinds(decode_body(piece).records)]
    assert kinds(decoded.records) == alone
    assert [each.number for each in decoded.records] == list(range(len(forms)))


@given(forms=st.lists(st.sampled_from(sorted(FORMS)), min_size=1, max_size=5), data=st.data())
def test_a_body_that_is_cut_keeps_what_is_before_the_cut(
    forms: list[str], data: st.DataObject
) -> None:
    whole = b"".join(FORMS[form](number) for number, form in enumerate(forms, 1))
    last = FORMS[forms[-1]](len(forms))
    cut = data.draw(st.integers(1, len(last) - 1))
    decoded = decode_body(whole[:-cut])
    before_it = decode_body(whole).records[: len(forms) - 2]
    assert decoded.records[: len(before_it)] == before_it
    assert len(decoded.damaged) <= 1


def test_two_handlings_of_a_cloud_client_have_begins_and_ends(tmp_path: Path) -> None:
    topic = TraceBuilder(tmp_path / "traced")
    topic.copy(M1)
    topic.copy(M2)
    topic.trace(
        before(M1, 10, R1), cloud_end(M1, R1), before(M2, 20, R2), cloud_end(M2, R2, success=False)
    )
    written = topic.write()
    assert (written.deliveries, written.counts.missing_end, written.gaps) == (2, 0, ())
    table = topic.run_dir / "lake" / "table=deliver"
    found = pq.read_table(table, partitioning=None).to_pylist()
    assert sorted((row["status"], row["et"] - row["bt"]) for row in found) == [
        ("LATER", 5_000_000),
        ("SUCCESS", 5_000_000),
    ]
