"""What MkDocs asks for each page; named by ``hooks`` of mkdocs.yml.

Cells of tables get the heading of their column: on a narrow screen docs/site.css shows a row as a
card. A link to a file that is not in the site becomes plain text, ``bash run`` a ``bash`` block.
"""

from __future__ import annotations

import html
import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")
_MARKED_FENCE = re.compile(r"^([ >]*```\w+) run$", re.MULTILINE)
"""Of a block that tests run; Markdown's fences take one word."""
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEADING = re.compile(r"<th(?:\s[^>]*)?>(.*?)</th>", re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<td\b")
_TAG = re.compile(r"<[^>]+>")
_LEFT_OUT = ("../", "decisions/", "design/")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page without links to what is not in the site; fences have one word."""
    plain = _MARKED_FENCE.sub(r"\1", markdown)
    return without_outside_links(plain, page.file.src_uri)


def without_outside_links(markdown: str, page: str) -> str:
    """Return ``markdown`` of the page at the path ``page``, with its inside links only."""
    folder = posixpath.dirname(page)

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, found[2]))
        return found[1] if target.startswith(_LEFT_OUT) else found[0]

    return _LINK.sub(link, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Return the page with its tables labelled."""
    return _TABLE.sub(lambda table: labelled(table[0]), content)


def labelled(table: str) -> str:
    """Return a table each of whose cells names its column."""
    headings = [html.unescape(_TAG.sub("", text)) for text in _HEADING.findall(table)]
    return _ROW.sub(lambda row: _with_labels(row[0], headings), table)


def _with_labels(row: str, headings: list[str]) -> str:
    labels = iter(headings)

    def cell(_: re.Match[str]) -> str:
        label = next(labels, "")
        return f'<td data-label="{html.escape(label)}"' if label else "<td"

    return _CELL.sub(cell, row)
