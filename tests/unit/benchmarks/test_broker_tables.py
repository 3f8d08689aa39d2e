"""What the broker's benchmark prints: verdicts, tables, the section of a document."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests.benchmarks import bench_broker
from tests.benchmarks.broker import targets
from tests.benchmarks.broker.engines import alternating, middle
from tests.benchmarks.broker.generator import Window
from tests.benchmarks.broker.scale import FULL, GIB
from tests.benchmarks.broker.table import in_short, size
from tests.benchmarks.documents import END, Table, begin, number, with_figures
from tests.benchmarks.targets import Target, at_least, at_most

pytestmark = pytest.mark.unit

COMMAND = bench_broker.COMMAND
BEGIN = begin(COMMAND)


def window(rate: float, *cpu_us: float, errors: int = 0, first_error: str = "") -> Window:
    return Window(rate, cpu_us, rate / 10, rate / 5, rate / 2, 100, errors, 1, first_error)


@pytest.mark.parametrize(
    ("target", "ratio", "text"),
    [
        (at_least(1.7), 1.7, "1.70 met (≥ 1.7)"),
        (at_least(1.7), 1.69, "1.69 missed (≥ 1.7)"),
        (at_most(0.4), 0.4, "0.40 met (≤ 0.4)"),
        (at_most(0.4), 0.55, "0.55 missed (≤ 0.4)"),
    ],
)
def test_a_verdict_says_ratio_outcome_and_target(target: Target, ratio: float, text: str) -> None:
    assert target.verdict(ratio) == text


def test_targets_depend_on_threads_and_on_the_batch() -> None:
    assert [targets.send_rate(threads).limit for threads in (1, 16, 64)] == [1.0, 1.7, 1.7]
    assert [targets.send_cpu(batch).limit for batch in (1, 32)] == [0.4, 0.8]
    assert targets.send_rate(1).at_least
    assert not targets.send_cpu(1).at_least


def test_a_table_lines_up_and_has_its_notes_below() -> None:
    table = Table("Sends", ("body", "rate"), [["1 KiB", "25,000"], ["16 KiB", "9"]], ["One note."])
    assert table.markdown() == (
        "### Sends\n"
        "\n"
        "| body   | rate   |\n"
        "|--------|--------|\n"
        "| 1 KiB  | 25,000 |\n"
        "| 16 KiB | 9      |\n"
        "\n"
        "One note.\n"
    )


def test_verdicts_are_told_in_short_of_one_size_and_counted_of_all() -> None:
    sends = Table(
        "(a)",
        ("body", "threads", "batch", "msg/s ours", "rate ours/Apache", "CPU ours/Apache"),
        [
            ["128 B", "1", "1", "9", "1.20 met (≥ 1)", "0.50 missed (≤ 0.4)"],
            ["1 KiB", "64", "32", "8", "1.80 met (≥ 1.7)", "0.36 met (≤ 0.8)"],
        ],
    )
    rest = Table("At rest", ("figure", "ours/Apache"), [["boot, s", "0.20 met (≤ 0.33)"]])
    lean = Table(
        "Lean",
        ("sends outstanding", "growth", "CPU ours/Apache"),
        [["16", "2.00 met (≥ 1)", "0.27 met (≤ 0.4)"]],
    )
    plain = Table("No targets", ("figure", "ours"), [["size", "3"]])
    assert in_short([sends, rest, lean, plain], "1 KiB").splitlines() == [
        "6 of 7 targets are met. With bodies of 1 KiB:",
        "",
        "| what                      | ours/Apache (target)                        |",
        "|---------------------------|---------------------------------------------|",
        "| (a): 64 threads, batch 32 | rate 1.80 met (≥ 1.7); CPU 0.36 met (≤ 0.8) |",
        "| At rest: boot, s          | 0.20 met (≤ 0.33)                           |",
        "| Lean: 16 outstanding      | growth 2.00 met (≥ 1); CPU 0.27 met (≤ 0.4) |",
    ]


def test_figures_replace_what_stands_between_the_markers_and_nothing_else() -> None:
    document = f"# Title\n\n{BEGIN}\nold | figures\n{END}\n\nThe end.\n"
    once = with_figures(document, COMMAND, "new\n")
    assert once == f"# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nThe end.\n"
    assert with_figures(once, COMMAND, "new") == once


@pytest.mark.parametrize(
    "document", ["no markers", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}{END}{BEGIN}{END}"]
)
def test_a_document_without_one_section_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match="figures"):
        with_figures(document, COMMAND, "new")


def test_figures_have_as_many_digits_as_say_something() -> None:
    assert [number(value) for value in (25_123.4, 99.96, 18.43, 0.347)] == [
        "25,123",
        "100.0",
        "18.4",
        "0.35",
    ]
    assert [size(count) for count in (128, 1024, 16 << 10, 512 << 20, 4 * GIB)] == [
        "128 B",
        "1 KiB",
        "16 KiB",
        "512 MiB",
        "4 GiB",
    ]


def test_the_opponents_take_turns_and_the_order_changes_every_round() -> None:
    order: list[str] = []

    def measure(name: str) -> int:
        order.append(name)
        return len(order)

    found = alternating([("a", lambda: measure("a")), ("b", lambda: measure("b"))], 3)
    assert "".join(order) == "abbaab"
    assert found == {"a": [1, 4, 5], "b": [2, 3, 6]}


def test_the_middle_of_windows_is_a_median_of_each_figure_and_sums_what_went_wrong() -> None:
    found = middle(
        [
            window(10, 5, 1),
            window(30, 9, 2, errors=2, first_error="busy"),
            window(20, 7, 9, errors=1, first_error="later"),
        ]
    )
    assert (found.rate, found.cpu_us, found.p99_ms) == (20, (7, 2), 4)
    assert (found.messages, found.errors, found.unsure) == (300, 3, 3)
    assert found.first_error == "busy"


def test_the_command_line_changes_a_scale_and_names_unknown_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    argv = ["bench", "--cells", "a,restart", "--sizes", "128,1024", "--seconds", "0.5"]
    monkeypatch.setattr("sys.argv", argv)
    options = bench_broker.parse()
    scale = bench_broker.chosen_scale(options)
    assert options.cells == ("a", "restart")
    assert (scale.sizes, scale.seconds, scale.rounds) == ((128, 1024), 0.5, FULL.rounds)
    with pytest.raises(argparse.ArgumentTypeError, match="no cell d; there are a, b, c"):
        bench_broker._names("a,d")


def test_a_document_without_a_place_for_figures_is_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    document = tmp_path / "README.md"
    document.write_text("No place.\n")
    monkeypatch.setattr("sys.argv", ["bench", "--readme", str(document)])
    monkeypatch.setattr(bench_broker, "server_home", lambda: tmp_path)
    monkeypatch.setattr(bench_broker, "measure", lambda options, scale: pytest.fail("it ran"))
    with pytest.raises(ValueError, match="figures"):
        bench_broker.main()


@pytest.mark.parametrize("failed", [[], ["restart"]])
def test_a_document_gets_the_figures_of_a_whole_run_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failed: list[str]
) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"Before.\n{BEGIN}\nold\n{END}\nAfter.\n")
    table = Table("At rest", ("figure", "ours"), [["boot, s", "0.6"]])
    monkeypatch.setattr("sys.argv", ["bench", "--scale", "small", "--markdown", str(document)])
    monkeypatch.setattr(bench_broker, "server_home", lambda: tmp_path)
    monkeypatch.setattr(bench_broker, "machine", lambda: "2 CPUs")
    monkeypatch.setattr(bench_broker, "measure", lambda options, scale: ([table], failed))
    assert bench_broker.main() == (1 if failed else 0)
    text = document.read_text()
    if failed:
        assert "\nold\n" in text
        return
    assert "old" not in text
    assert "2 CPUs. Measured 20" in text
    assert "1 rounds of 1 s per cell, medians." in text
    assert table.markdown().strip() in text
    assert text.startswith("Before.\n")
    assert text.endswith("After.\n")
