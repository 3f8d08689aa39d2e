"""Print which sections of Chinese pages are out of date: ``python tools/translations.py``.

The last comment of a Chinese page names its English page and has a line for each section of that:
the digest of the text that was translated, or ``-`` for a section that is left out, and the
heading. Breaks of lines do not count. After translating what is printed, ``--write PAGE``
records the digests of today.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LEFT_OUT: Final = "-"
_COMMENT: Final = re.compile(r"<!-- translates (?P<page>\S+)\n(?P<lines>(?:.*\n)*?)-->\n\Z")
_PARTS: Final = re.compile(r"^(```.*?^```|#+ .+?)$", re.MULTILINE | re.DOTALL)


def chinese_pages(root: Path = ROOT) -> list[Path]:
    return [root / "README.zh-CN.md", *sorted((root / "docs" / "zh").glob("*.md"))]


def sections(text: str) -> dict[str, str]:
    """Return the digest of each section by its heading, in the order of the page.

    A ``#`` within a fenced block begins no section.
    """
    bodies: dict[str, list[str]] = {}
    for part in _PARTS.split(text):
        if part.startswith("#"):
            heading = part.lstrip("#").strip()
            if heading in bodies:
                raise ValueError(f"two sections are called {heading!r}: rename one")
            bodies[heading] = []
        if bodies:
            bodies[heading].append(part)
    return {
        heading: hashlib.sha256(" ".join("".join(body).split()).encode()).hexdigest()[:10]
        for heading, body in bodies.items()
    }


def recorded(page: Path) -> tuple[Path, dict[str, str]]:
    """Return the English page of a Chinese one, and the digest of each section translated.

    Raises:
        ValueError: The page does not end with its comment.
    """
    found = _COMMENT.search(page.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{page}: the comment `<!-- translates PAGE` is missing at the end")
    lines = (line.partition(" ") for line in found["lines"].splitlines())
    return page.parent / found["page"], {heading: digest for digest, _, heading in lines}


def out_of_date(page: Path) -> Iterator[str]:
    """Yield a sentence for every section whose English text is not the one translated."""
    english, known = recorded(page)
    now = sections(english.read_text(encoding="utf-8"))
    for heading, digest in now.items():
        if known.get(heading) not in (digest, LEFT_OUT):
            what = "changed" if heading in known else "is new"
            yield f"{page.name}: {heading!r} of {english.name} {what}: translate it"
    for heading in known.keys() - now.keys():
        yield f"{page.name}: {english.name} has no section {heading!r} now: take it out"


def with_digests(page: Path) -> str:
    """Return the text of a Chinese page with the digests of today; a new section gets one too."""
    english, known = recorded(page)
    lines = "".join(
        f"{LEFT_OUT if known.get(heading) == LEFT_OUT else digest} {heading}\n"
        for heading, digest in sections(english.read_text(encoding="utf-8")).items()
    )
    text = page.read_text(encoding="utf-8")
    return _COMMENT.sub(lambda found: f"<!-- translates {found['page']}\n{lines}-->\n", text)


def main(words: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument(
        "--write", nargs="+", type=Path, metavar="PAGE", help="record that these are translated"
    )
    options = parser.parse_args(None if words is None else list(words))
    for page in options.write or ():
        page.write_text(with_digests(page), encoding="utf-8")
    found = [said for page in chinese_pages() for said in out_of_date(page)]
    print("\n".join(found) or "Every Chinese section is as new as its English one.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
