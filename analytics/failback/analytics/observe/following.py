"""Reads the trace topic of an observed cluster beside the looks, and writes nothing to brokers.

Traces are read every few seconds, because the broker that has them may be the next to go. Positions
of the traced messages are in the topics themselves: they are read less often, and at the end. A
queue is read from the offset of its groups at the first look, or of a returned master.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from failback.analytics.observe.folder import Wanted, seconds
from failback.analytics.observe.observation import Observation
from failback.analytics.trace.pages import Pages, Place
from failback.analytics.trace.reading import (
    Span,
    TopicReader,
    copy_rows,
    record_rows,
    trace_topics_of,
)
from failback.analytics.trace.run import traced_groups
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.common.files import read_object
from failback.common.replacing import replace_file
from failback.common.text import where_and_why
from failback.protocol.errors import FailbackError
from failback.protocol.message import MessageExt
from failback.protocol.names import is_meant, without_instance
from failback.protocol.route import split_offset_key

RECORDS_SECONDS: Final = 10.0
COPIES_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 3.0
"""Clients send traces twice a second: those of the last look are waited for."""
BEFORE_MS: Final = 10 * 60 * 1000
"""Traces that were stored this long before the observation began are read."""
CLOCK: Final = "clock.json"

Begins = Mapping[str, Mapping[str, Mapping[int, int]]]
"""``cluster/broker`` to ``topic@group`` to queue id to an offset."""


class Follower:
    """Reads traces, and positions of the traced messages, into the run folder's pages."""

    def __init__(
        self,
        client: RemotingClient,
        wanted: Wanted,
        folder: Path,
        zero_wall_ns: int,
        zero: float,
        say: Callable[[str], None],
    ) -> None:
        """``zero``: run zero as a reading of ``folder.seconds``."""
        self._wanted = wanted
        self._zero_wall_ms = zero_wall_ns // 1_000_000
        self._zero = zero
        self._say = say
        self._said: set[str] = set()
        self._pages = Pages(folder)
        source: dict[str, Any] = {
            "run": wanted.run,
            "trace_topics": list(wanted.trace),
            "since_ms": zero_wall_ns // 1_000_000 - BEFORE_MS,
        }
        self._pages.open(source)
        self._span = Span(since_ms=source["since_ms"])
        self._admin = AdminClient(wanted.name_servers, client=client, timeout_ms=5000)
        self._reader = TopicReader(client, self._admin, self._pages)
        self._groups: set[str] = set(traced_groups(self._pages.read("records")))
        self._ahead_ms = ahead_ms(folder)

    async def run(self, stop: asyncio.Event, begins: Callable[[], Begins]) -> None:
        """Read until ``stop`` is set, then once more to the end."""
        copies_at = time.monotonic() + COPIES_SECONDS
        while not stop.is_set():
            await self._records()
            if time.monotonic() >= copies_at:
                await self._copies(begins())
                copies_at = time.monotonic() + COPIES_SECONDS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), RECORDS_SECONDS)
        await asyncio.sleep(SETTLE_SECONDS)
        await self._records()
        await self._copies(begins())

    async def _records(self) -> None:
        try:
            topics = await trace_topics_of(self._admin, self._wanted.trace)
        except (FailbackError, OSError):
            topics = list(self._wanted.trace)
        for topic in topics:
            await self._read("records", topic, self.take, self._span, {})
        self.keep()

    def keep(self) -> None:
        """Write how far the observer's clock is ahead of the brokers'."""
        note = {"observer_ahead_ms": self._ahead_ms}
        try:
            replace_file(self._pages.folder / CLOCK, json.dumps(note).encode())
        except OSError as error:
            self._tell(self._refused(error))

    async def _copies(self, begins: Begins) -> None:
        for topic, places in begins_of(begins, self._groups, self._wanted.groups).items():
            await self._read("copies", topic, copy_rows, Span(), places)

    async def _read(
        self, table: str, topic: str, take: Any, span: Span, places: Mapping[Place, int]
    ) -> None:
        try:
            problems = await self._reader.read(table, topic, take, span, places)
        except FailbackError as error:
            problems = [f"{topic}: {error}"]
        except OSError as error:
            problems = [self._refused(error)]
        for problem in problems:
            self._tell(problem)

    def _refused(self, error: OSError) -> str:
        """Return the sentence about a full disk. A later round begins where the files end."""
        return (
            f"{where_and_why(error)}: it is read on from here when the folder can be written again;"
            " make room"
        )

    def _tell(self, problem: str) -> None:
        """Report a problem once."""
        if problem not in self._said:
            self._said.add(problem)
            self._say(f"trace: {problem}")

    def take(self, place: Place, bid: int, message: MessageExt) -> list[dict[str, Any]]:
        """Return rows of a trace message, and measure with it how far clocks are apart."""
        # The age of a message is at least 0, so the youngest message gives the best bound. Run zero
        # and the clock of looks replace the wall clock here, because that one may be set meanwhile.
        passed = round((seconds() - self._zero) * 1000)
        ahead = self._zero_wall_ms + passed - message.store_timestamp
        self._ahead_ms = ahead if self._ahead_ms is None else min(self._ahead_ms, ahead)
        rows = record_rows(place, bid, message)
        self._groups.update(row["group"] for row in rows if row.get("group"))
        return rows


@asynccontextmanager
async def following(
    client: RemotingClient,
    wanted: Wanted,
    folder: Path,
    zero_wall_ns: int,
    zero: float,
    observation: Observation,
    say: Callable[[str], None],
) -> AsyncIterator[None]:
    """Read the trace while the block runs, and its rest afterwards.

    ``zero``: run zero as a reading of ``folder.seconds``.
    """
    follower = Follower(client, wanted, folder, zero_wall_ns, zero, say)
    stop = asyncio.Event()
    task = asyncio.create_task(follower.run(stop, observation.first_offsets))
    try:
        yield
    except BaseException:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    stop.set()
    await task


def begins_of(
    begins: Begins, traced: Collection[str], wanted: Collection[str]
) -> dict[str, dict[Place, int]]:
    """Return by topic the offsets to read its queues from: the lowest of a traced group."""
    found: dict[str, dict[Place, int]] = {}
    for pair, keys in begins.items():
        broker = pair.rpartition("/")[2]
        for key, queues in keys.items():
            topic, group = split_offset_key(key)
            # Traces name a group as its clients do.
            if without_instance(group) not in traced or (wanted and not is_meant(group, wanted)):
                continue
            places = found.setdefault(topic, {})
            for queue, offset in queues.items():
                place = Place(broker, topic, queue)
                places[place] = min(offset, places.get(place, offset))
    return found


def ahead_ms(folder: Path) -> int | None:
    """Return how far the observer's clock is ahead of the brokers', in ms, if that is known."""
    try:
        found = read_object(folder / "trace" / CLOCK)["observer_ahead_ms"]
    except (OSError, ValueError, KeyError):
        return None
    return found if isinstance(found, int) else None
