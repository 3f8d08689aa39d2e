"""What the site's pages get beyond Markdown."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tools.docs_hooks import labelled, on_page_markdown, without_outside_links


def test_each_cell_names_its_column() -> None:
    table = (
        "<table>\n<thead>\n<tr>\n<th>what</th>\n<th>R &amp; <code>P</code></th>\n</tr>\n</thead>\n"
        "<tbody>\n<tr>\n<td>a</td>\n<td style='x'>b</td>\n</tr>\n</tbody>\n</table>"
    )
    made = labelled(table)
    assert '<td data-label="what">a</td>' in made
    assert "<td data-label=\"R &amp; P\" style='x'>b</td>" in made


def test_a_link_that_leaves_the_site_becomes_text() -> None:
    text = "[one](../../CHANGELOG.md) [two](../decisions/001.md#x) [three](trace.md#a) [four](#b)"
    wanted = "one two [three](trace.md#a) [four](#b)"
    assert without_outside_links(text, "howto/page.md") == wanted


@pytest.mark.parametrize("indent", ["", "    "])
def test_a_fence_that_tests_run_is_a_fence_of_one_word(indent: str) -> None:
    text = f"{indent}```bash run\n{indent}failback predict\n{indent}```\n"
    page = SimpleNamespace(file=SimpleNamespace(src_uri="howto/page.md"))
    assert on_page_markdown(text, page) == text.replace("bash run", "bash")
