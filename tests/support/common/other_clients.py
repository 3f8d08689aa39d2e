"""Bodies as clients of other languages, and people, write them, with what Apache made of each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final, NamedTuple

_DATA: Final = Path(__file__).resolve().parents[2] / "data/protocol/bodies_of_other_clients.json"
PACKAGE: Final = "org.apache.rocketmq.common."
_NOW: Final = re.compile(r"(?<=:)1[789][0-9]{11}\b")


class Written(NamedTuple):
    """``java_class`` without :data:`PACKAGE`; ``apache`` is what was read, or ``refused ...``.

    ``otherwise`` says why ours reads something else.
    """

    java_class: str
    body: str
    apache: str
    otherwise: str

    @property
    def is_refused(self) -> bool:
        return self.apache.startswith("refused") or self.apache == "null"


def bodies_of_other_clients() -> list[Written]:
    return [Written(*row) for row in json.loads(_DATA.read_text())["bodies"]]


def without_times(answer: str) -> str:
    """Put 0 for times of reading, which Java gives to what has none."""
    return _NOW.sub("0", answer)
