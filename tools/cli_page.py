"""Write docs/reference/cli.md: ``python tools/cli_page.py``.

Everything about a command comes from the command itself; a test compares.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from failback.cli.app import app
from failback.cli.help_tree import Documented, commands
from failback.cli.kubectl.__main__ import NAME
from failback.cli.kubectl.__main__ import app as plugin
from failback.protocol.words.help_page import Row, Section

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
_WIDTH: Final = 100
_HEAD: Final = """# Command line

Made by `python tools/cli_page.py`.

`failback COMMAND -h` shows what stands here. `failback --install-completion` adds completion to
your shell. Answers go to stdout, notes and errors to stderr; `--json` prints answers for programs.
Below 60 columns help is one column. `NO_COLOR` switches colours off. The plugin of kubectl,
[kubectl failback](#kubectl-failback), is at the end.

Where a command asks a cluster, `--namesrv` is `HOST:PORT;HOST:PORT`. Without it
`$FAILBACK_NAMESRV` counts, then `$NAMESRV_ADDR`, then `namesrv` in
`~/.config/failback/config.toml`, and without that the local cluster that `failback up` started.
Access keys and TLS are found in the same order: [guarded clusters](../howto/guarded-cluster.md).

## Exit codes

| code | meaning |
|---|---|
| 0 | done; of runs and reports: Pass |
| 1 | the answer is no: Fail, a limit missed, what was asked about is nowhere |
| 2 | the input is wrong: a word on the command line, a file, an address |
| 3 | nothing can be said: Inconclusive, interrupted, nobody answered |
| 4 | a guard refused; nothing was done |
| 5 | something that a run did is still in place: `failback experiment heal RUN` |

Of several runs the code that most needs a person counts: 5, 2, 4, 1, 3, 0. Servers have codes of
their own besides: a broker ends with 74 when its disk failed, and with 253 when its store can't be
opened.

## Old spellings

These of 0.1 go on working in 0.2, with a note on stderr, and end with 0.3.

| old | now |
|---|---|
| `failback run EXPERIMENT` | `failback experiment run EXPERIMENT` |
| `failback run --list` | `failback experiment list` |
| `failback run EXPERIMENT --dry-run` | `failback experiment check EXPERIMENT` |
| `failback run --heal RUN` | `failback experiment heal RUN` |
| `failback run --abort RUN` | `failback experiment abort RUN` |

Without a note, for programs that start it: `python -m failback.client.consumelog.ship` is
`failback ship`.
"""


def render() -> str:
    """Return the page."""
    root, *others = commands(app)
    parts = [_HEAD, "## Commands\n"]
    groups = [each for each in root.page.sections if each.title != "Options"]
    parts += [_overview(each) for each in groups]
    parts += [_chapter(each) for each in (*others, *commands(plugin, NAME))]
    return "\n".join(parts)


def _overview(section: Section) -> str:
    lines = [f"**{section.title}**", ""]
    for row in section.rows:
        lines += _entry(f"[{row.name}](#failback-{row.name})", row.text)
    return "\n".join(lines) + "\n"


def _chapter(command: Documented) -> str:
    page = command.page
    lines = [f"## {command.name}", ""]
    for paragraph in filter(None, page.text.split("\n\n")):
        lines += [*textwrap.wrap(" ".join(paragraph.split()), _WIDTH), ""]
    lines += ["```text", *textwrap.wrap(page.usage, 88, subsequent_indent="  "), "```", ""]
    if page.examples:
        lines += ["Examples:", "", "```text", *page.examples, "```", ""]
    for section in page.sections:
        lines += [f"{section.title}:", ""]
        for row in section.rows:
            lines += _row(row)
        lines.append("")
    return "\n".join(lines)


def _row(row: Row) -> Iterator[str]:
    yield from _entry(f"`{row.name.strip()}`", row.text)


def _entry(name: str, text: str) -> list[str]:
    # Angle brackets and stars of a text are no markup.
    plain = text.replace("*", "\\*").replace("<", "&lt;")
    return textwrap.wrap(
        f"* {name}: {plain}",
        _WIDTH,
        subsequent_indent="  ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def main() -> int:
    PAGE.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
