"""Asks name servers and brokers once each period, and writes nothing to them.

Each look asks every name server for its list (106), and every broker for its table of offsets (43).
Other questions are asked less often. A broker says when it began (28), and a master its settings
(26), twice a minute and after its connection ended. The ends of queues (202) and the members of
groups (203) are asked every few seconds, and in each look while a master is down or a group in
danger.

Clients find a returned master, and move its table, within a second. So a broker that refuses
connections is tried ten times a second, and is looked at as soon as it answers.

A slow broker, as one that has just started on a busy machine, is not asked again each period. The
look in which its answer comes has it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence, Set
from typing import Any, Final

from failback.analytics.live.facts import BROADCASTING
from failback.analytics.observe.asking_clients import ClientAsker
from failback.analytics.observe.folder import seconds
from failback.analytics.observe.looks import ANSWERED, REFUSED, SILENT, BrokerLook, Look, Place
from failback.analytics.observe.members import JAVA, TELLS_NOBODY
from failback.analytics.observe.returns import is_about
from failback.analytics.predict.keys import KEYS, RULES
from failback.client.admin.admin import AdminClient
from failback.client.admin.queue_offsets import COPIES_NONE
from failback.client.admin.survey import BrokerSurvey
from failback.client.remoting.connection import RemotingClient
from failback.common.numbers import whole
from failback.protocol.codes import ResponseCode
from failback.protocol.errors import (
    BrokerError,
    FailbackError,
    RemotingConnectError,
    RemotingTimeout,
    UnreadableAnswer,
)
from failback.protocol.route import split_offset_key

ANSWER_SECONDS: Final = 10.0
"""For so long a broker's answer is waited for, over several looks."""
FIRST_SECONDS: Final = 5.0
"""For so long the first look waits for a name server."""
SELDOM_SECONDS: Final = 5.0
BOOT_SECONDS: Final = 30.0
FORGET_SECONDS: Final = 6 * 3600.0
"""For so long a broker that is in no list any more is asked at its last address."""
SETTINGS: Final = frozenset({RULES, *(key for key in KEYS if KEYS[key].side == "broker")})
"""The settings of a broker that a prediction needs."""
RETRY_SECONDS: Final = 0.1
"""How often a broker that refuses connections is tried."""
_NO_TIME_MS: Final = 10**13
"""The year 2286: no broker began then, so its clock is wrong."""
_AT_ONCE: Final = 32
"""Questions under way to one broker."""


class _Question:
    """The questions to a broker for one look. They are asked again only after the answer."""

    def __init__(self) -> None:
        self._task: asyncio.Task[BrokerLook] | None = None

    async def within(
        self, most: float, ask: Callable[[], Coroutine[Any, Any, BrokerLook]]
    ) -> BrokerLook | None:
        """Return the answer, or ``None`` if it takes longer: the next call waits for it, too."""
        if self._task is None:
            self._task = asyncio.create_task(ask())
        await asyncio.wait({self._task}, timeout=most)
        if not self._task.done():
            return None
        task, self._task = self._task, None
        return task.result()

    async def close(self) -> None:
        """Cancel the questions under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class _Asked:
    """One broker, and when it was asked which question."""

    def __init__(self, place: Place, address: str, admin: AdminClient) -> None:
        self.place = place
        self.address = address
        self.boot_ms: int | None = None
        self.boot_at = -BOOT_SECONDS
        self.config: dict[str, str] = {}
        self.has_new_config = False
        self.seldom_at = -SELDOM_SECONDS
        self.listed_at = 0.0
        self.is_refused = False
        """Whether it refused the connection at the last look."""
        self.version = ""
        """``brokerVersionDesc``; another word once it was named as copying no offsets."""
        self.is_young = False
        """Whether it refused connections before, and has not said since when its process began."""
        self.survey = BrokerSurvey(admin, address, turn=asyncio.Semaphore(_AT_ONCE))
        self.question = _Question()

    def take_new_config(self) -> dict[str, str] | None:
        """Return its settings if they changed since the last call."""
        found = self.config if self.has_new_config else None
        self.has_new_config = False
        return found


class Asker:
    """Looks at a cluster. Times are seconds after ``zero``, a reading of ``folder.seconds``."""

    def __init__(
        self,
        name_servers: Sequence[str],
        client: RemotingClient,
        *,
        zero: float,
        every: float = 1.0,
        groups: Set[str] = frozenset(),
        topics: Set[str] = frozenset(),
        asks_clients: bool = False,
    ) -> None:
        """``groups`` and ``topics``: as ``returns.is_about`` takes them."""
        self._patience = max(0.5, every)
        """For so many seconds a look waits for an answer."""
        self._prompt = AdminClient(name_servers, client=client, timeout_ms=self._patience * 1000)
        self._first = AdminClient(name_servers, client=client, timeout_ms=FIRST_SECONDS * 1000)
        self._admin = AdminClient(
            name_servers, client=client, timeout_ms=max(ANSWER_SECONDS, every) * 1000
        )
        self._zero = zero
        self.every = every
        self._groups = groups
        self._topics = topics
        self._asked: dict[Place, _Asked] = {}
        self._versions: dict[tuple[str, str], int] = {}
        """As `ClientAsker.take` wants it; of groups that broadcast there is none."""
        self._languages: dict[str, str] = {}
        """Client id to language, of members that are not Java's."""
        self._asks_all = asks_clients
        self._clients = ClientAsker(self._prompt, zero)
        self._notes: list[str] = []

    def take_notes(self) -> list[str]:
        """Return sentences on slaves that copy no offsets, each slave once."""
        found, self._notes = self._notes, []
        return found

    async def close(self) -> None:
        """Cancel the questions under way."""
        await asyncio.gather(*(asked.question.close() for asked in self._asked.values()))
        await self._clients.close()

    def _now(self) -> float:
        return seconds() - self._zero

    def connection_ended(self, address: str) -> None:
        """Let the next look ask a broker when it began: it may be another process."""
        for asked in self._asked.values():
            if asked.address == address:
                asked.boot_at, asked.boot_ms = -BOOT_SECONDS, None

    async def wait(self, most: float) -> None:
        """Wait ``most`` seconds, or until a broker that refused connections answers."""
        until = time.monotonic() + most
        while (left := until - time.monotonic()) > 0:
            gone = [asked for asked in self._asked.values() if asked.is_refused]
            if any(await asyncio.gather(*(self._is_back(asked, left) for asked in gone))):
                return
            await asyncio.sleep(min(left, RETRY_SECONDS) if gone else left)

    async def _is_back(self, asked: _Asked, most: float) -> bool:
        try:
            async with asyncio.timeout(most):
                await self._boot(asked)
        except (FailbackError, OSError, TimeoutError):
            return False
        return True

    async def _boot(self, asked: _Asked) -> None:
        """Ask when the broker began.

        Apache's broker fails to answer in its first second, because its figures are missing
        (4.9.7, StoreStatsService.getPutTps: a list is empty until it is sampled). A broker that
        refused connections before is another process in any case, so the error is no loss.
        """
        began = self._now()
        try:
            told = await self._admin.runtime_info(asked.address)
        except BrokerError as error:
            if error.code == ResponseCode.SYSTEM_ERROR and not asked.is_young:
                raise
            return
        boot_ms = whole(told.get("bootTimestamp"))
        asked.boot_ms = boot_ms if boot_ms is not None and boot_ms < _NO_TIME_MS else None
        asked.boot_at, asked.is_young = began, False
        asked.version = asked.version or told.get("brokerVersionDesc", "")
        if asked.place.broker_id == 0:
            await self._settings(asked)

    async def _settings(self, asked: _Asked) -> None:
        """Ask a master for its settings. Without the right to ask they stay unknown."""
        try:
            told = await self._admin.broker_config(asked.address)
        except (BrokerError, UnreadableAnswer):
            return
        found = {name: value for name, value in told.items() if name in SETTINGS}
        if found != asked.config:
            asked.config, asked.has_new_config = found, True

    async def look(self, *, closely: bool) -> Look:
        """Ask all name servers and brokers. ``closely``: the seldom questions too."""
        began = self._now()
        servers = await self._admin.name_servers()
        answers = await asyncio.gather(*map(self._listing, servers))
        listings = dict(zip(servers, answers, strict=True))
        await self._meet(Look(began, began, self.every, listings))
        brokers = await asyncio.gather(
            *(self._in_time(asked, closely=closely) for asked in self._asked.values())
        )
        # Members that tell no broker how far they are can only be asked themselves.
        asked = {
            each: version
            for each, version in self._versions.items()
            if self._asks_all or self._languages.get(each[1]) == TELLS_NOBODY
        }
        clients = self._clients.take(brokers, asked)
        return Look(began, self._now(), self.every, listings, tuple(brokers), clients)

    async def _meet(self, look: Look) -> None:
        """Note the brokers that are listed, and forget those that have not been for long."""
        now = self._now()
        for place, address in sorted(look.listed().items()):
            known = self._asked.get(place)
            if known is None or known.address != address:
                await self._forget(place)
                self._asked[place] = known = _Asked(place, address, self._admin)
            known.listed_at = now
        for place, asked in list(self._asked.items()):
            taken = any(
                other.address == asked.address and other.listed_at > asked.listed_at
                for other in self._asked.values()
            )  # the process has another role since, and is asked as that
            if taken or now - asked.listed_at > FORGET_SECONDS:
                await self._forget(place)

    async def _forget(self, place: Place) -> None:
        if (asked := self._asked.pop(place, None)) is not None:
            await asked.question.close()

    async def _listing(self, address: str) -> dict[str, dict[int, str]] | None:
        try:
            admin = self._prompt if self._asked else self._first
            info = await admin.cluster_info_at(address)
        except (FailbackError, OSError):
            return None
        found: dict[str, dict[int, str]] = {}
        for member in info.members():
            pair = f"{member.cluster}/{member.broker_name}"
            found.setdefault(pair, {})[member.broker_id] = member.addr
        return found

    async def _in_time(self, asked: _Asked, *, closely: bool) -> BrokerLook:
        began, most = self._now(), self._patience
        found = await asked.question.within(most, lambda: self._broker(asked, closely=closely))
        if found is not None:
            return found
        problem = str(RemotingTimeout(asked.address, most * 1000))
        place = asked.place
        return BrokerLook(
            place.pair, place.broker_id, asked.address, began, self._now(), SILENT, problem=problem
        )

    async def _broker(self, asked: _Asked, *, closely: bool) -> BrokerLook:
        began = self._now()

        def look(state: str, problem: str | None = None, **told: object) -> BrokerLook:
            return BrokerLook(
                asked.place.pair,
                asked.place.broker_id,
                asked.address,
                began,
                self._now(),
                state,
                problem=problem,
                **told,  # type: ignore[arg-type]
            )

        try:
            if began - asked.boot_at >= BOOT_SECONDS:
                await self._boot(asked)
            offsets = await self._admin.all_offsets(asked.address)
        except RemotingConnectError as error:
            asked.is_refused = error.is_refused
            asked.is_young |= error.is_refused
            if error.is_refused:
                return look(REFUSED, str(error))
            return look(SILENT, str(error), is_unreachable=True)
        except (FailbackError, OSError) as error:
            return look(SILENT, str(error))
        asked.is_refused = False
        if asked.place.broker_id and not offsets and asked.version in COPIES_NONE:
            self._notes.append(
                f"{asked.place.text} has no consumer offsets: a slave of Apache 5.5.0 copies none"
                " (apache/rocketmq#10284). A member that starts while its master is down begins at"
                " the first message or at the end"
            )
            asked.version = "named"
        spans, members = None, None
        if closely or began - asked.seldom_at >= SELDOM_SECONDS:
            asked.seldom_at = began
            wanted = [
                split_offset_key(key)
                for key in offsets
                if is_about(key, self._groups, self._topics)
            ]
            spans = (await asked.survey.queues(sorted({topic for topic, _ in wanted}))).spans
            members = await self._members(asked, sorted({group for _, group in wanted}))
        return look(
            ANSWERED,
            boot_ms=asked.boot_ms,
            offsets={key: dict(queues) for key, queues in offsets.items()},
            spans=spans,
            members=members,
            languages=None if members is None else self._languages_of(members),
            config=asked.take_new_config(),
        )

    def _languages_of(self, members: Mapping[str, Iterable[str]]) -> dict[str, str]:
        clients = {client for them in members.values() for client in them}
        return {each: self._languages[each] for each in clients & self._languages.keys()}

    async def _members(self, asked: _Asked, groups: Sequence[str]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for group, connection in (await asked.survey.connections(groups)).items():
            clients = connection.connection_set if connection is not None else []
            if connection is not None and connection.message_model != BROADCASTING:
                self._versions |= {(group, each.client_id): each.version for each in clients}
            others = {each.client_id: each.language for each in clients if each.language != JAVA}
            self._languages |= others
            found[group] = {each.client_id: each.client_addr for each in clients}
        return found
