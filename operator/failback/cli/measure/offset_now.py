"""The copies of one consumer offset at the brokers now: the live half of explain-offset."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from failback.analytics.live.facts import (
    BROADCASTING,
    GroupTopic,
    MemberFacts,
    PairFacts,
    group_topic,
    runtime_facts,
)
from failback.analytics.live.known import Bound, restarted_seconds
from failback.analytics.live.offset_file import of_broker
from failback.analytics.live.queues import QueueLineage, carry_now, lineage
from failback.analytics.live.queues import Step as LineageStep
from failback.analytics.live.watch import first_look
from failback.cli.shared.asking import NotThere, route_of
from failback.client.admin.queue_offsets import (
    ANSWER,
    CLIENT,
    MASTER_FILE,
    MASTER_TABLE,
    SLAVE_TABLE,
    Span,
)
from failback.client.admin.survey import BrokerSurvey, TopicQueues, client_memory
from failback.common.numbers import whole_or_0
from failback.common.text import did_you_mean
from failback.protocol.codes import ResponseCode
from failback.protocol.errors import BrokerError, ConfigError, FailbackError, RemotingError

if TYPE_CHECKING:
    from failback.client.admin.admin import AdminClient

Step = dict[str, Any]

_PAST: Final = ("commits", "earlier values")
"""Steps of an offset that no broker remembers."""


class Place(NamedTuple):
    """One queue as one group sees it."""

    group: str
    topic: str
    queue: int

    @property
    def key(self) -> GroupTopic:
        return group_topic(self.entry)

    @property
    def entry(self) -> str:
        """Its key in offset tables."""
        return f"{self.topic}@{self.group}"


class Standing(NamedTuple):
    """The copies of an offset of one queue, and what they mean."""

    broker: str
    steps: list[Step]
    safe_offset: int | None
    """The highest offset in a table or in a member's memory."""
    after_return: int | None
    """Messages re-consumed if the master is killed now and members start after its return."""
    on_slave: int | None
    """The same if they start while it is down."""
    unseen: list[str]
    span: Span | None = None
    """The offsets of the queue; ``None`` without an answer."""
    outside: tuple[str, ...] = ()
    """Offsets that lie outside of the queue, in words."""
    silent: tuple[str, ...] = ()
    """Members of the pair that did not answer or have no such topic, and why."""
    near: str = ""
    """Of a group without an offset: which known one may be meant."""
    is_broadcasting: bool = False
    """Whether members keep their own offsets: then those of brokers are old."""
    bound: Bound = Bound.EXACT
    """Whether the group has handled no more than ``safe_offset``."""
    restarted_seconds: float | None = None
    """The age of a master that started recently with an old store."""
    carry: str | None = None
    """The command that gives the master what its slaves know of all groups, if they know more."""


async def stand_of(
    admin: AdminClient, place: Place, broker: str, options: Sequence[str] = ()
) -> Standing:
    """Ask every member of the pair that has the queue. ``options``: of the cluster, as typed.

    Raises:
        ConfigError: ``broker`` does not say which of several has it.
    """
    name, addresses = await _pair_of(admin, place, broker)
    # Slaves first: one that copies meanwhile must not seem to be ahead of its master.
    looks: list[_Look] = []
    for is_master in (False, True):
        some = [each for each in addresses.items() if (each[0] == 0) is is_master]
        looks[:0] = await asyncio.gather(*(_look(admin, *each, place) for each in some))
    answering = next((look.facts for look in looks if look.facts.answered), None)
    asked = BrokerSurvey(admin, answering.address) if answering else None
    client = await _client(admin, answering.address, place, name) if answering else None
    facts, ended_by, lost = await _facts(admin, place, name, [look.facts for look in looks])
    facts, young = first_look(facts), restarted_seconds(facts)
    since = 0
    if client and answering and young is not None:
        since = await _started_ms(admin, answering.address, place.group, client[1])
    found = lineage(facts, place.key, place.queue, client[0] if client else None, since)
    said = {look.facts.address: look.said for look in looks}
    steps = [_shown(each, said, client[1] if client else "", found.span) for each in found.steps]
    seen = {each.place for each in found.steps if each.member is None or each.member.answered}
    if answering is not None:
        steps.append(await _answer(admin, answering, place, found))
    wanted = (CLIENT, MASTER_TABLE, MASTER_FILE, SLAVE_TABLE)
    unseen = [*(each for each in wanted if each not in seen), *_PAST]
    return Standing(
        name,
        steps,
        found.safe_offset,
        found.after_return,
        found.on_slave,
        unseen,
        found.span,
        _in_log_of(found.outside, ended_by),
        (
            *(look.said for look in looks if not look.facts.answered),
            *([f"{lost}, though the name server lists it there"] if lost else []),
        ),
        await _near(asked, place) if all(each.offset is None for each in found.steps) else "",
        await _broadcasts(asked, place.group),
        found.bound,
        young,
        carry_now(facts, options),
    )


def _in_log_of(outside: Sequence[str], member: MemberFacts | None) -> tuple[str, ...]:
    """Return offsets outside of the queue in words, with the slave whose log was asked."""
    if member is None or member.is_master:
        return tuple(outside)
    log = f"of the log of slave {member.broker_id}, and the master may have more"
    return tuple(f"{each} {log}" for each in outside)


async def _near(asked: BrokerSurvey | None, place: Place) -> str:
    """Return which group may be meant, of those that a broker knows."""
    groups = None if asked is None else await asked.groups()
    if groups is None:
        return ""
    if place.group in groups:
        return "; brokers have settings of it"
    return did_you_mean(place.group, groups) or ": is its name right?"


async def _broadcasts(asked: BrokerSurvey | None, group: str) -> bool:
    found = None if asked is None else (await asked.connections([group])).get(group)
    return found is not None and found.message_model == BROADCASTING


async def _pair_of(admin: AdminClient, place: Place, broker: str) -> tuple[str, dict[int, str]]:
    """Return the broker's name and its members, master first."""
    route = await route_of(admin, place.topic)
    having = {d.broker_name for d in route.queue_datas if place.queue < d.read_queue_nums}
    if not having:
        most = max((d.read_queue_nums for d in route.queue_datas), default=0)
        problem = f"there is no queue {place.queue} of {place.topic}; it has 0 to {most - 1}"
        raise ConfigError("QUEUE", problem)
    names = sorted(having & {broker} if broker else having)
    if len(names) != 1:
        some = ", ".join(sorted(having)) or "no broker"
        raise ConfigError(
            "--broker", f"name one that has queue {place.queue} of {place.topic}: {some}"
        )
    for data in route.broker_datas:
        if data.broker_name == names[0] and data.broker_addrs:
            return names[0], dict(sorted(data.broker_addrs.items()))
    raise NotThere(f"the name server lists queues of {place.topic} on {names[0]}, and no address")


class _Look(NamedTuple):
    """The table of one member, and what it holds in words."""

    facts: MemberFacts
    said: str


async def _look(admin: AdminClient, bid: int, addr: str, place: Place) -> _Look:
    """Ask one member for its table; one that does not show it, for this offset alone."""
    try:
        started = runtime_facts(await admin.runtime_info(addr))
    except RemotingError as error:  # it would not answer the next question either
        return _Look(MemberFacts(addr, bid, answered=False), f"{addr} did not answer: {error}")
    except (FailbackError, ValueError):
        started = {}
    how = ""
    try:
        try:
            queues = dict((await admin.all_offsets(addr)).get(place.entry, {}))
        except BrokerError as error:
            how = f"; it does not show its table: {error}"
            told = await admin.query_offset(addr, place.group, place.topic, place.queue)
            queues = {} if told is None else {place.queue: told}
    except FailbackError as error:
        facts = MemberFacts(addr, bid, answered=False, **started)
        return _Look(facts, f"{addr} did not answer: {error}")
    offset = queues.get(place.queue)
    config = await BrokerSurvey(admin, addr).config() if bid == 0 else None
    # What a kill of the master would leave, if it is on this machine.
    file = None if config is None else await asyncio.to_thread(of_broker, addr, config)
    table = {place.key: queues}
    facts = MemberFacts(addr, bid, offsets=table, file=file, config=config or {}, **started)
    said = "has no entry" if offset is None else f"holds {offset}"
    return _Look(facts, f"{addr} {said}{how}")


async def _facts(
    admin: AdminClient, place: Place, broker: str, members: Sequence[MemberFacts]
) -> tuple[PairFacts, MemberFacts | None, str]:
    """Return the facts, the member that has the queue's end, and which one has lost the topic."""
    queues, ended_by, lost = TopicQueues({}), None, ""

    def failed(error: Exception) -> None:
        nonlocal lost
        if isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST:
            lost = lost or f"{error.addr} has no topic {place.topic} now"

    for each in members:
        if each.answered and ended_by is None:
            queues = await BrokerSurvey(admin, each.address, failed=failed).queues([place.topic])
            ended_by = each if queues.tables else None
    facts = PairFacts(broker, tuple(members), time.time(), queues.ends, queues.begins)
    return facts, ended_by, lost


async def _client(
    admin: AdminClient, addr: str, place: Place, broker: str
) -> tuple[int, str] | None:
    """Return the offset in the memory of the member that has the queue, and its client id."""
    found = (await client_memory(admin, addr, place.group)).get((broker, place.topic, place.queue))
    return None if found is None or found[0] < 0 else found


async def _started_ms(admin: AdminClient, addr: str, group: str, client_id: str) -> int:
    """Return when a member started by its own clock; 0 where it does not say so."""
    survey = BrokerSurvey(admin, addr)
    info = await survey.ask(partial(admin.consumer_running_info, addr, group, client_id))
    return 0 if info is None else whole_or_0(info.properties.get("PROP_CONSUMER_START_TIMESTAMP"))


async def _answer(
    admin: AdminClient, member: MemberFacts, place: Place, found: QueueLineage
) -> Step:
    """Return the answer of the first broker that a new holder of the queue would ask."""
    addr, bid = member.address, member.broker_id
    try:
        offset = await admin.query_offset(addr, place.group, place.topic, place.queue)
    except FailbackError as error:
        return _step(ANSWER, None, bid, None, f"{addr} did not answer: {error}")
    said = "nothing, and it begins by its own rule" if offset is None else str(offset)
    what = f"a new owner of the queue is told {said} by {addr}"
    if offset is None or found.safe_offset is None:
        return _step(ANSWER, offset, bid, None, what)
    there = offset if found.span is None else found.span.nearest(offset)
    fell = max(0, found.safe_offset - there)
    return _step(ANSWER, offset, bid, None, f"{what}{_outside(offset, found.span)}", fell)


def _outside(offset: int | None, span: Span | None) -> str:
    if offset is None or span is None:
        return ""
    if span.beyond(offset):
        return f", which is beyond the end {span.end}"
    return f", which is below the first offset {span.first}" if span.expired(offset) else ""


def _shown(step: LineageStep, said: Mapping[str, str], client: str, span: Span | None) -> Step:
    """Return one copy of the offset in words."""
    member = step.member
    odd = _outside(step.offset, span)
    if member is None:
        what = f"{client} has {step.offset} in memory{odd}"
        return _step(step.place, step.offset, None, None, what, step.fell)
    if step.place == MASTER_FILE and member.file is not None:
        held = "has no entry" if step.offset is None else f"holds {step.offset}{odd}"
        what = f"{member.file.path} {held}: what a kill would leave"
        return _step(step.place, step.offset, member.broker_id, None, what, step.fell)
    started = member.boot_ms or None
    what = f"{said[member.address]}{odd}"
    return _step(step.place, step.offset, member.broker_id, started, what, step.fell)


def furthest(steps: Sequence[Step]) -> int | None:
    """The number of the step that lies furthest below the safe offset."""
    fallen = [number for number, step in enumerate(steps) if step["fell"]]
    return max(fallen, key=lambda number: (steps[number]["fell"], -number), default=None)


def _step(
    place: str,
    offset: int | None,
    bid: int | None,
    incarnation: int | None,
    what: str,
    fell: int = 0,
) -> Step:
    return {
        "t": None,
        "place": place,
        "offset": offset,
        "fell": fell,
        "broker_id": bid,
        "incarnation": incarnation,
        "what": what,
        "row": None,
    }
