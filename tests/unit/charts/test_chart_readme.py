"""The table of values in the chart's README, and the cluster that its notes print."""

from __future__ import annotations

import pytest
from tools.chart_readme import CHART, PAGE, render, with_values

from tests.support.docs.yaml_examples import ROOT, documents_of


def test_the_table_is_what_the_values_say() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_values(page), "run: python tools/chart_readme.py"


def test_a_value_has_its_path_its_default_and_the_comment_above_it() -> None:
    text = "# Not of a value.\n\n# Of both.\na:\n  # One\n  # b.\n  b: {c: 1}\n  d: x|y\n"
    text += "n: []\n# - m: 1\n\ne: 2\n"
    rows = render(text).splitlines()
    assert rows[4:8] == [
        "| **`a`** | | Of both. |",
        "| `a.b` | `{c: 1}` | One b. |",
        "| `a.d` | `x\\|y` |  |",
        "| `n` | `[]` |  |",
    ]
    assert "```yaml\nn:\n- m: 1\n```" in render(text)


def test_what_the_reader_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match=r"values\.yaml:2: "):
        render("a:\n  - 1\n")


def test_the_notes_print_the_first_cluster_of_the_examples() -> None:
    printed = (CHART / "files/first-cluster.yaml").read_text()
    assert documents_of(printed) == documents_of((ROOT / "examples/cluster.yaml").read_text())
    assert printed.startswith("---\n")
