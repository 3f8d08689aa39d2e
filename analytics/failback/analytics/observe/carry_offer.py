"""Writes what slaves knew to ``RUN/carry``, and says which command carries it to the master.

Each file has the form of ``consumerOffset.json``, as ``failback carry --file`` reads it, and beside
it under ``accept_lower`` what the offsets were that fell during the outage.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from failback.analytics.live.facts import is_canary, is_system
from failback.analytics.live.queues import behind, carry_command, furthest
from failback.analytics.observe.kept_tables import Kept, KeptTable
from failback.analytics.observe.looks import BrokerLook, Look, Place
from failback.analytics.observe.observation import Observation
from failback.carry.restoring import restore_command
from failback.common.replacing import replace_file
from failback.common.text import typed, where_and_why
from failback.protocol.route import split_offset_key

_NAMED: Final = 10
"""Groups that are named in a sentence."""


class CarryOffer:
    """Keeps files for the pairs whose master is down. Sentences are said once an outage."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        """``options``: as typed, those that name the cluster."""
        self._folder = folder.resolve() / "carry"
        self._options = options
        self._written: dict[Path, bytes] = {}
        self._said: dict[str, set[str]] = {}
        """By pair, while its master is down."""

    def file_of(self, slave: KeptTable) -> Path:
        """Return where its table is kept. An address of any text becomes one file name."""
        return self._folder / f"{re.sub(r'[^0-9A-Za-z.:_-]', '_', slave.address)[-100:]}.json"

    def look(self, look: Look, observation: Observation) -> Iterator[str]:
        """Write what a look showed; yield sentences, with the commands to type."""
        kept = observation.kept
        for pair in sorted({*kept.away, *kept.back}):
            tables = kept.of(pair)
            name = Place(pair, 0).broker
            lines = [line for table in tables for line in self._keep(name, *table)]
            groups = sorted(
                {split_offset_key(key)[1] for table, _ in tables for key, _ in table.fell}
            )
            if pair in kept.back:
                master = look.at(Place(pair, 0))
                spared = _spared(master, [each for _, each in tables], observation)
                lines += self._online(name, spared) if master and spared else ()
                how = "--lower and --group with its name take them"
            else:
                lines += self._offline(pair, tables) if tables else ()
                how = "--accept-lower with its name takes them as they are"
            lines += [
                f"  carry: offsets of {group} fell on a slave during the outage; if that was a"
                f" reset: {how}"
                for group in groups
                if not (is_system(group) or is_canary(group))
            ]
            said = self._said.setdefault(pair, set())
            yield from (line for line in lines if line not in said)
            said.update(lines)
        for pair in kept.back:
            self._said.pop(pair, None)

    def _keep(self, broker: str, table: KeptTable, offsets: Kept) -> Iterator[str]:
        path, fell = self.file_of(table), dict[str, dict[int, int]]()
        for (key, queue), offset in table.fell.items():
            fell.setdefault(key, {})[queue] = offset
        told = {"brokerName": broker, "offsetTable": offsets, "accept_lower": fell}
        content = json.dumps(told).encode()
        if self._written.get(path) != content:
            try:
                self._folder.mkdir(exist_ok=True)
                replace_file(path, content)
                self._written[path] = content
            except OSError as error:
                yield f"carry: {where_and_why(error)}: what slaves know is not kept; make room"

    def _offline(self, pair: str, tables: Sequence[tuple[KeptTable, Kept]]) -> Iterator[str]:
        asked = [table.address for table, _ in tables if table.answers]
        is_told = {table.address: raised == table.offsets for table, raised in tables}
        files = [
            self.file_of(table)
            for table, _ in tables
            if not (table.answers and is_told[table.address])
        ]
        command = carry_command(asked, files=files, options=self._options)
        copied = "after a copy of each --file there" if files else f"kept: {self._folder}"
        yield (
            f"  carry: before {Place(pair, 0).broker} starts, on its host ({copied}):"
            f"\n           {command}"
        )
        for slave in asked:
            if not is_told[slave]:
                keep = typed("failback", "carry", "--keep", "--slave", slave, *self._options)
                yield f"  carry: members have finished more than the slave was told: {keep}"

    def _online(self, broker: str, spared: Mapping[str, int]) -> Iterator[str]:
        command = restore_command(self._folder.parent, broker=broker, options=self._options)
        told = ", ".join(f"{group} {count:,}" for group, count in [*spared.items()][:_NAMED])
        more = f" and {len(spared) - _NAMED} more groups" if len(spared) > _NAMED else ""
        yield (
            f"  restore now: by the tables seen it spares, without running members, {told}{more}"
            f" messages:\n           {command}"
        )


def _spared(
    master: BrokerLook | None, tables: Sequence[Kept], observation: Observation
) -> dict[str, int]:
    """Return by group the messages that tables have beyond a returned master's, most first."""
    found: Counter[str] = Counter()
    for key in {key for table in tables for key in table}:
        topic, group = split_offset_key(key)
        if is_canary(group):
            continue
        if master and master.offsets and not is_system(group) and observation.is_wanted(key):
            spans = (master.spans or {}).get(topic, {})
            begins, ends = ({queue: span[n] for queue, span in spans.items()} for n in (0, 1))
            best = furthest(table.get(key) for table in tables)
            found[group] += behind(best, master.offsets.get(key), begins, ends)
    return {group: count for group, count in found.most_common() if count}
