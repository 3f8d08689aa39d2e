"""Decides what a dashboard keeps of overwritten offsets, in memory and in its runs' folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from failback.analytics.live.facts import GroupTopic, PairFacts, Table, table_of
from failback.analytics.live.watch import PairWatch, lost
from failback.common.replacing import replace_file
from failback.protocol.errors import ProtocolError
from failback.protocol.route import parse_offset_table

logger = logging.getLogger(__name__)

Place = tuple[str, str]
"""Key of a cluster, and a broker name."""
_AT: Final = "overwrittenAtMs"
_DISMISSED: Final = "dismissed"


class Stake(NamedTuple):
    """What the slave of a pair no longer has, and its groups have not passed."""

    at: float
    """Unix time of the first look that showed the old offsets on master and slave."""
    messages: dict[GroupTopic, int]
    file: Path | None
    """The offsets as they were, as a consumerOffset.json; ``None``: it could not be written."""
    is_dismissed: bool


StakesFound = Mapping[Place, Stake]


class Stakes:
    """The watches over all pairs. What they saw outlives the process in a file for each pair."""

    def __init__(self, folder: Path) -> None:
        """``folder``: where the files are; it is made with the first one."""
        self._folder = folder
        self._watches: dict[Place, PairWatch] = {}
        self._written: dict[Place, bytes] = {}
        self.found: dict[Place, Stake] = {}

    def look(self, place: Place, facts: PairFacts) -> Table | None:
        """Take one look at a pair; return what it had before its master's last start."""
        watch = self._watches.get(place) or self._watches.setdefault(place, self._read(place))
        facts = replace(facts, seen=watch.look(facts))
        messages = {} if watch.overwritten_at is None else lost(facts)
        self.found.pop(place, None)
        if messages and watch.overwritten_at is not None:
            path = self._write(place, watch, messages)
            stake = Stake(watch.overwritten_at, messages, path, watch.is_dismissed)
            self.found[place] = stake
        elif facts.master is not None and self._written.pop(place, None) is not None:
            self._path(place).unlink(missing_ok=True)
        return watch.seen

    def dismiss(self, place: Place) -> None:
        """Show what was overwritten no more; figures still take it into account."""
        watch = self._watches.get(place)
        if watch is not None:
            watch.is_dismissed = True

    def _path(self, place: Place) -> Path:
        return self._folder / f"offsets-{quote('.'.join(place), safe='')}.json"

    def _read(self, place: Place) -> PairWatch:
        try:
            content = self._path(place).read_bytes()
            told, table = json.loads(content), table_of(parse_offset_table(content))
            self._written[place] = content
            return PairWatch(table, told[_AT] / 1000, bool(told.get(_DISMISSED)))
        except FileNotFoundError:
            return PairWatch()
        except (OSError, ValueError, LookupError, TypeError, ProtocolError) as error:
            logger.warning("%s is not read: %s", self._path(place), error)
            return PairWatch()

    def _write(
        self, place: Place, watch: PairWatch, messages: dict[GroupTopic, int]
    ) -> Path | None:
        table = {
            f"{key.topic}@{key.group}": {str(queue): offset for queue, offset in queues.items()}
            for key, queues in (watch.seen or {}).items()
            if key in messages
        }
        at_ms = round((watch.overwritten_at or 0) * 1000)
        told: dict[str, object] = {"brokerName": place[1], "offsetTable": table}
        told |= {_AT: at_ms, _DISMISSED: watch.is_dismissed}
        content, path = json.dumps(told).encode(), self._path(place)
        if content != self._written.get(place):
            try:
                replace_file(path, content)
            except OSError as error:
                logger.warning("%s is not written: %s", path, error)
                return None
            self._written[place] = content
        return path
