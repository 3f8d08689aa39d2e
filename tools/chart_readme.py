"""Write the table of values into charts/failback/README.md: ``python tools/chart_readme.py``.

The part between the two markers is made from values.yaml: a comment above a key is its description,
one behind a key, before the next blank line, an example. A test compares.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

CHART: Final = Path(__file__).resolve().parent.parent / "charts" / "failback"
PAGE: Final = CHART / "README.md"
BEGIN: Final = "<!-- values: made by `python tools/chart_readme.py` -->"
END: Final = "<!-- end of values -->"
_KEY: Final = re.compile(r"^( *)([A-Za-z]\w*):(?: (.*))?$")
_COMMENT: Final = re.compile(r"^ *#(?: (.*))?$")


def render(values: str) -> str:
    """Return the part between the markers, both included.

    Raises:
        ValueError: A line is none that this reader knows.
    """
    rows, examples = [], []
    above: list[str] = []
    path: list[str] = []
    for number, line in enumerate(values.splitlines(), start=1):
        if comment := _COMMENT.match(line):
            above.append(comment[1] or "")
        elif key := _KEY.match(line):
            path[len(key[1]) // 2 :] = [key[2]]
            if above or key[3] is not None:
                rows.append(_row(".".join(path), key[3], " ".join(above)))
            above = []
        elif line:
            raise ValueError(f"values.yaml:{number}: neither a key, a comment nor blank")
        elif above:
            if rows:
                examples.append("\n".join([f"{path[0]}:", *above]))
            above = []
    table = ["| value | default | meaning |", "|---|---|---|", *rows]
    blocks = [f"```yaml\n{text}\n```" for text in examples]
    return "\n\n".join([BEGIN, "\n".join(table), *blocks, END])


def _row(name: str, default: str | None, text: str) -> str:
    if default is None:
        return f"| **`{name}`** | | {_cell(text)} |"
    return f"| `{name}` | `{_cell(default)}` | {_cell(text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def with_values(page: str) -> str:
    """Return the page with the part between the markers made again."""
    head, _, rest = page.partition(BEGIN)
    values = (CHART / "values.yaml").read_text(encoding="utf-8")
    return head + render(values) + rest.partition(END)[2]


def main() -> int:
    PAGE.write_text(with_values(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
