"""Each entry of chinese.js is of a sentence that pages have, and keeps its numbers and names."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.processes.child_process import ROOT

PAGES: Final = ROOT / "analytics/failback/analytics"
_SCRIPT: Final = (PAGES / "report/page/templates/chinese.js").read_text(encoding="utf-8")
_FOUND: Final = re.search(r"const CHINESE = (\{.*?\n\});", _SCRIPT, re.DOTALL)
CHINESE: Final[list[tuple[str, str]]] = json.loads(
    _FOUND[1] if _FOUND else "[]", object_pairs_hook=list
)
_PLACE: Final = re.compile(r"#|@|\{\}")


def texts(path: Path) -> str:
    """What a module or a template can put on a page, without tags and plurals' s."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        strings = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
        text = "\n".join(str(each.value) for each in strings if isinstance(each.value, str))
    return re.sub(r"s\b", "", re.sub(r"<[^>]*>", "\n", text))


@cache
def said_by_pages() -> str:
    files = [*PAGES.rglob("*.py"), *PAGES.rglob("*.j2"), PAGES / "dashboard/static/app.js"]
    return "\n".join(map(texts, files))


def pieces(key: str) -> list[str]:
    """What stands between the numbers with their nouns, and the names, of a key."""
    parts = (re.sub(r"s\b", "", part).strip(" ()%") for part in re.split(r"# \w+|#|@|\{\}", key))
    return [part for part in parts if part]


def test_an_entry_is_of_a_page_and_keeps_what_its_places_hold() -> None:
    for english, chinese in CHINESE:
        missing = [part for part in pieces(english) if part not in said_by_pages()]
        assert missing == [], f"no page says {english!r}: change the key with its sentence"
        places = [str(place) for place, _ in enumerate(_PLACE.findall(english), 1)]
        assert sorted(re.findall(r"\{(\d)\}", chinese)) == places, english
        assert re.search("[\u4e00-\u9fff]", chinese) or chinese == "Broker", english


def test_no_sentence_has_two_entries() -> None:
    keys = [key for key, _ in CHINESE]
    assert len(keys) == len(set(keys)) > 60


def test_what_no_page_says_is_found() -> None:
    assert pieces("# messages of {} fly (@) birds") == ["of", "fly", "bird"]
    assert " fly " not in said_by_pages()
    assert pieces("{}") == []
