"""Groups and topics of one name in several instances (Java's namespaces) are several."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from failback.analytics.observe.following import begins_of
from failback.analytics.report.make_report import read_report, report
from failback.analytics.trace.pages import Place
from failback.protocol.names import instance_of, is_meant, without_instance
from tests.support.analytics.trace_builder import TraceBuilder, made_id, pub

A, B = "MQ_INST_a", "MQ_INST_b"


@pytest.mark.parametrize(
    ("name", "instance", "bare"),
    [
        ("orders", "", "orders"),
        ("MQ_INST_a%orders", A, "orders"),
        ("%RETRY%MQ_INST_a%billing", A, "%RETRY%billing"),
        ("%DLQ%MQ_INST_a%billing", A, "%DLQ%billing"),
        ("%RETRY%billing", "", "%RETRY%billing"),
        ("MQ_INST_a%MQ_INST_a%x", A, "MQ_INST_a%x"),
        ("%", "", "%"),
    ],
)
def test_a_name_is_taken_apart_as_the_client_does(name: str, instance: str, bare: str) -> None:
    assert (instance_of(name), without_instance(name)) == (instance, bare)


def test_a_group_is_meant_by_its_whole_name_or_by_the_clients() -> None:
    assert is_meant("MQ_INST_a%billing", {"billing"})
    assert is_meant("MQ_INST_a%billing", {"MQ_INST_a%billing"})
    assert not is_meant("MQ_INST_a%billing", {"MQ_INST_b%billing"})
    assert not is_meant("billing", {"MQ_INST_a%billing"})


def two_instances(path: Path) -> TraceBuilder:
    """Group g in both: a's message comes twice, b's three times, of which once as a retry."""
    topic = TraceBuilder(path)
    first, second = made_id(9, 1), made_id(9, 2)
    topic.copy(first, topic=f"{A}%T")
    topic.copy(second, topic=f"{B}%T")
    topic.copy(second, topic=f"%RETRY%{B}%g", rt=1)
    topic.trace(pub(first), pub(second))
    topic.handled(first, 10, 15, process=1)
    topic.handled(first, 20, 25, process=1)
    topic.handled(second, 10, 15, process=2, success=False)
    topic.handled(second, 20, 25, process=2, rt=1)
    topic.handled(second, 30, 35, process=2, rt=1)
    return topic


def test_a_trace_tells_instances_apart(tmp_path: Path) -> None:
    topic = two_instances(tmp_path / "run")
    written = topic.write()
    assert (written.groups, written.counts.unplaced) == ((f"{A}%g", f"{B}%g"), 0)
    found = read_report(report(tmp_path / "run", "local").json)
    assert {group["group"]: (group["delivered"], group["retry"], group["dup"])
            for group in found["groups"]} == {f"{A}%g": (2, 0, 1), f"{B}%g": (3, 1, 1)}  # fmt: skip
    sent = pq.read_table(tmp_path / "run" / "lake" / "table=produce", partitioning=None)
    assert set(sent.column("topic").to_pylist()) == {f"{A}%T", f"{B}%T"}


@pytest.mark.parametrize(
    ("named", "groups"),
    [("g", (f"{A}%g", f"{B}%g")), (f"{B}%g", (f"{B}%g",)), ("other", ())],
)
def test_one_group_is_named(tmp_path: Path, named: str, groups: tuple[str, ...]) -> None:
    assert two_instances(tmp_path / "run").write(groups=(named,)).groups == groups


def test_an_observer_reads_the_topics_of_traced_groups_in_every_instance() -> None:
    offsets = {
        "c/pair-a": {
            f"{A}%T@{A}%g": {0: 7, 1: 3},
            f"%RETRY%{A}%g@{A}%g": {0: 0},
            f"{B}%T@{B}%g": {0: 5},
            f"{A}%T@{A}%other": {0: 1},
        }
    }
    every = begins_of(offsets, {"g"}, ())
    assert every == {
        f"{A}%T": {Place("pair-a", f"{A}%T", 0): 7, Place("pair-a", f"{A}%T", 1): 3},
        f"%RETRY%{A}%g": {Place("pair-a", f"%RETRY%{A}%g", 0): 0},
        f"{B}%T": {Place("pair-a", f"{B}%T", 0): 5},
    }
    assert begins_of(offsets, {"g"}, (f"{B}%g",)).keys() == {f"{B}%T"}
