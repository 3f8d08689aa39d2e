"""What one workload process does, and the messages that it makes. Pure.

A message's body is ``lid|okey|kseq|filler|crc``: its LAB_ID, its ordering key and the key's own
counter, bytes from the seed, and the CRC-32 of all before it in eight hex digits. LAB_ID is a user
property as well; it never changes, however often the message is sent or stored again. The plan of a
process is a file of plain data.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from failback.chaos.experiment.model import Group, Model, TopicLoad, Workload
from failback.chaos.experiment.reading import unknown_name
from failback.client.consumelog.hot_format import SEGMENT_BYTES, SEGMENT_SECONDS
from failback.client.consumelog.lab_id import LAB_ID_CHARS, format_lab_id, lane_of
from failback.client.remoting.guarded.access import ClusterAccess
from failback.client.remoting.settings import ClientSettings
from failback.protocol.errors import ConfigError

_SEPARATOR: Final = b"|"
_CRC_BYTES: Final = 8
_NOT_SETTABLE: Final = frozenset({"namesrv_addrs", "time_scale", "access"})
_FILLER_BYTES: Final = 1 << 16
_KINDS: Final = 0x6B696E64


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What one producer process sends to one topic. ``rate_per_second`` is its own share."""

    name: str
    queues: int
    rate_per_second: float
    body_bytes: int
    keys: int
    ordered: bool = False
    preload_messages: int = 0
    delay_levels: Mapping[int, float] = field(default_factory=dict)
    """Share of the messages that are sent with a delay level."""
    resend_ratio: float = 0.0
    """Share of the messages that the application sends again once they were acknowledged."""
    resend_failed: int = 0
    """So often the application sends the very message again whose send failed."""
    burst_every_seconds: float | None = None
    burst_factor: float | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class HandlerPlan:
    """How long handling takes, how often it asks for a retry, and how often it raises.

    ``delay_ms`` comes on top of what is drawn: it is what a slow dependency adds.
    """

    mean_ms: float = 1.0
    jitter_ms: float = 0.0
    fail_ratio: float = 0.0
    throw_ratio: float = 0.0
    delay_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class ShipPlan:
    """Where the consume log goes while it is written."""

    to: str
    """``http(s)://COLLECTOR``, or the root of a lake on this host."""
    token_file: Path | None = None
    linger_seconds: float = 60.0
    """After the end of the process a collector that is down is waited for so long."""


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """What all processes of the workload have in common."""

    run: str
    hot: Path
    proc_no: int
    proc: str | None
    """In hexadecimal digits; ``None``: the log draws one."""
    namesrv: tuple[str, ...]
    control: Path | None
    time_scale: float = 1.0
    switches: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    segment_bytes: int = SEGMENT_BYTES
    segment_seconds: float = SEGMENT_SECONDS
    ship: ShipPlan | None = None
    """``None``: the parent process ships its log."""
    access_files: Mapping[str, str] = field(default_factory=dict)
    """Settings by which a guarded cluster is asked, by the names of their options."""
    access: ClusterAccess | None = None
    """The same as an object; a plan that is written has none."""

    def settings(self, **overrides: Any) -> ClientSettings:
        """Client settings of this process: switches over the given ones.

        Raises:
            ConfigError: A switch does not exist, with the nearest name.
        """
        check_switches(self.switches)
        return ClientSettings(
            namesrv_addrs=self.namesrv,
            access=self.access,
            time_scale=self.time_scale,
            **{**overrides, **self.switches},
        )


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """One producer process."""

    process: ProcessPlan
    index: int
    topics: tuple[TopicPlan, ...]
    send_timeout_ms: int = 3000
    retries: int = 2
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """One member of a group."""

    process: ProcessPlan
    group: str
    topic: str
    member: int = 0
    message_model: str = "CLUSTERING"
    consume_from: str = "FIRST"
    threads: int = 20
    pull_threshold_for_queue: int = 1000
    max_reconsume_times: int = -1
    handler: HandlerPlan = HandlerPlan()
    start_phase_ms: float = 0.0
    seconds: float | None = None


def check_switches(switches: Mapping[str, Any], where: str = "switches") -> None:
    """Raise ``ConfigError`` for a switch that the client does not have."""
    known = [name for name in ClientSettings.__dataclass_fields__ if name not in _NOT_SETTABLE]
    for name in switches:
        if name not in known:
            raise ConfigError(f"{where}.{name}", unknown_name(name, known))


def written_plan(plan: ProducerPlan | ConsumerPlan) -> dict[str, Any]:
    """Return the plan as its file holds it."""
    role = "producer" if isinstance(plan, ProducerPlan) else "consumer"
    return {"role": role, **msgspec.to_builtins(plan, str_keys=True, enc_hook=str)}


def read_plan(document: Mapping[str, Any]) -> ProducerPlan | ConsumerPlan:
    """Read what :func:`written_plan` returned.

    Raises:
        KeyError, msgspec.ValidationError: It is none.
    """
    kinds: dict[str, type[ProducerPlan | ConsumerPlan]]
    kinds = {"producer": ProducerPlan, "consumer": ConsumerPlan}
    kind = kinds[document["role"]]
    return msgspec.convert(document, kind, str_keys=True, dec_hook=lambda cls, value: cls(value))


class Draft(NamedTuple):
    """A message before it is sent."""

    lid: str
    okey: str
    kseq: int
    body: bytes
    delay_level: int = 0
    resend: bool = False


class MessageMaker:
    """Makes the messages of one producer for one topic, the same ones for the same seed."""

    def __init__(self, plan: TopicPlan, producer: int, seed: int) -> None:
        self._plan = plan
        self._producer = producer
        self._random = random.Random(seed ^ crc32(plan.name.encode()))
        self._filler = self._random.randbytes(_FILLER_BYTES).replace(_SEPARATOR, b"/")
        # Of their own, so that they move nothing that was drawn without them.
        self._kinds = random.Random(seed ^ crc32(plan.name.encode()) ^ _KINDS)
        self._made = 0
        self._lanes: dict[int, int] = {}
        self._keys: dict[str, int] = {}

    def next(self) -> Draft:
        """Return the next message. Lane and key counters have no holes."""
        number = self._made
        self._made += 1
        okey = f"{self._producer}-{self._random.randrange(self._plan.keys)}"
        kseq = self._keys.get(okey, 0)
        self._keys[okey] = kseq + 1
        if self._plan.ordered:
            slot = crc32(okey.encode()) % self._plan.queues
        else:
            slot = number % self._plan.queues  # the client turns through the queues as well
        lane = lane_of(self._producer, slot)
        sequence = self._lanes.get(lane, 0)
        self._lanes[lane] = sequence + 1
        lid = format_lab_id(lane, sequence)
        body = self._body(lid, okey, kseq, number)
        return Draft(lid, okey, kseq, body, self._delay_level(), self._is_sent_again())

    def _delay_level(self) -> int:
        if self._plan.delay_levels:
            drawn = self._kinds.random()
            for level, share in sorted(self._plan.delay_levels.items()):
                drawn -= share
                if drawn < 0:
                    return level
        return 0

    def _is_sent_again(self) -> bool:
        ratio = self._plan.resend_ratio
        return bool(ratio) and self._kinds.random() < ratio

    def _body(self, lid: str, okey: str, kseq: int, number: int) -> bytes:
        head = b"%s|%s|%d|" % (lid.encode(), okey.encode(), kseq)
        wanted = max(0, self._plan.body_bytes - len(head) - len(_SEPARATOR) - _CRC_BYTES)
        filler = b""
        start = number * 97 % _FILLER_BYTES
        while len(filler) < wanted:
            filler += self._filler[start : start + wanted - len(filler)]
            start = 0
        content = head + filler + _SEPARATOR
        return content + b"%08x" % crc32(content)


class BadBody(Exception):
    """A body of ours that did not arrive as it was sent."""


def read_body(body: bytes) -> tuple[str, str, int] | None:
    """Return ``(lid, okey, kseq)`` of a body of ours, ``None`` for a foreign one.

    Raises:
        BadBody: It is ours and its CRC is wrong.
    """
    parts = body.split(_SEPARATOR, 3)
    if len(parts) != 4 or len(parts[0]) != LAB_ID_CHARS or parts[0][8:9] != b"-":
        return None
    content, crc = body[:-_CRC_BYTES], body[-_CRC_BYTES:]
    if b"%08x" % crc32(content) != crc:
        raise BadBody(f"CRC of {parts[0].decode(errors='replace')} is wrong")
    return parts[0].decode(), parts[1].decode(), int(parts[2])


def due_times(plan: TopicPlan, start: float) -> Iterator[float]:
    """Planned send times in seconds: open-loop, whether or not earlier sends have ended."""
    at = start
    while True:
        yield at
        rate = plan.rate_per_second
        if plan.burst_every_seconds and plan.burst_factor:
            in_burst = (at - start) % plan.burst_every_seconds < 1.0
            if in_burst:
                rate *= plan.burst_factor
        at += 1.0 / rate


def producer_plan(
    process: ProcessPlan, workload: Workload, index: int, time_scale: float
) -> ProducerPlan:
    """Return the plan of the producer with this number."""
    return ProducerPlan(
        process,
        index,
        tuple(_share(topic, workload.producers, index, time_scale) for topic in workload.topics),
        workload.send_timeout_ms,
        workload.retries,
    )


def consumer_plan(
    process: ProcessPlan, group: Group, member: int, delay_seconds: float
) -> ConsumerPlan:
    """Return the plan of one member of a group; it starts after ``delay_seconds``."""
    plan = ConsumerPlan(
        process=process, group=group.name, member=member, **_same(ConsumerPlan, group)
    )
    handler = HandlerPlan(**_same(HandlerPlan, group.handler))
    return replace(plan, handler=handler, start_phase_ms=delay_seconds * 1000)


def _same(plan: type[TopicPlan | HandlerPlan | ConsumerPlan], model: Model) -> dict[str, Any]:
    """The fields of a model that a plan has, too."""
    known = type(model).model_fields
    return {name: getattr(model, name) for name in plan.__dataclass_fields__ if name in known}


def _share(topic: TopicLoad, producers: int, index: int, time_scale: float) -> TopicPlan:
    """One producer's part of a topic's load; the first ones take what does not divide."""
    # A backlog lasts for an outage; a shorter outage needs less of it.
    preload, rest = divmod(round(topic.preload_messages * time_scale), producers)
    return replace(
        TopicPlan(**_same(TopicPlan, topic)),
        rate_per_second=topic.rate_per_second / producers,
        preload_messages=preload + (1 if index < rest else 0),
        delay_levels={int(level): share for level, share in topic.delay_levels.items()},
        burst_every_seconds=topic.burst.every_seconds if topic.burst else None,
        burst_factor=topic.burst.factor if topic.burst else None,
    )
