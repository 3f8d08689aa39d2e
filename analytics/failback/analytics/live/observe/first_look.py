"""What the first look must show before anything is written, and what is told beside later ones."""

from __future__ import annotations

from collections.abc import Iterator, Set
from pathlib import Path

from failback.analytics.live.observe.folder import Wanted
from failback.analytics.live.observe.looks import ANSWERED, SILENT, Look, Place
from failback.analytics.live.observe.observation import Observation
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.errors import ConfigError, FailbackError
from failback.protocol.names import without_instance
from failback.protocol.route import split_offset_key
from failback.protocol.words.spelling import did_you_mean


class NobodyAnswers(FailbackError):
    """No name server answered the first question."""

    exit_code = 3


async def check_first(
    look: Look, wanted: Wanted, known: Observation, path: Path, client: RemotingClient
) -> list[str]:
    """Refuse what can't be observed as it is wanted; return what may change yet, as sentences.

    Raises:
        NobodyAnswers: No name server did.
        ConfigError: The folder is about another cluster, or nobody knows a group or topic.
    """
    where = ", ".join(look.listings)
    if all(each is None for each in look.listings.values()):
        advice = client.problem or "name one that does in --namesrv"
        raise NobodyAnswers(f"no name server answers at {where}: {advice}")
    listed = {place.pair for place in look.listed()}
    before = set(known.first_offsets())
    if before and listed and not before & listed:
        problem = f"{path} is about {_all(before)}, and {where} lists {_all(listed)}"
        raise ConfigError("--out", f"{problem}: name a new folder")
    if not listed:
        return [f"{where} lists no broker: those that register are observed from then on"]
    return await _unknown(look, wanted, known, client)


async def _unknown(
    look: Look, wanted: Wanted, observation: Observation, client: RemotingClient
) -> list[str]:
    """Name groups and topics that nobody knows; who does not answer may know them."""
    keys = {key for broker in look.brokers for key in broker.offsets or ()}
    keys |= {key for tables in observation.first_offsets().values() for key in tables}
    named = [split_offset_key(key) for key in keys]
    topics, groups = {topic for topic, _ in named}, {group for _, group in named}
    is_whole = all(each.state == ANSWERED for each in look.brokers)
    admin = AdminClient(wanted.name_servers, client=client, timeout_ms=5000)
    try:
        if not topics.issuperset(wanted.topics):
            topics |= set(await admin.topic_list())
        if not groups.issuperset(wanted.groups):
            for broker in look.brokers:
                if broker.state == ANSWERED:
                    table = await admin.all_groups(broker.addr)
                    groups |= set(table.subscription_group_table)
    except FailbackError:  # without the right to know, nothing is refused
        is_whole = False
    said = []
    for option, asked, found in (
        ("--group", wanted.groups, groups),
        ("--topic", wanted.topics, topics),
    ):
        as_clients_do = set(map(without_instance, found))
        for name in sorted(set(asked) - found - as_clients_do):
            problem = f'no broker knows "{name}"{did_you_mean(name, found)}'
            if is_whole and not wanted.canary:  # which is there to be observed
                raise ConfigError(option, problem)
            said.append(f"{option}: {problem}: it is observed when one does")
    return said


class Complaints:
    """Names what does not answer as it should, once for each time that it begins to."""

    def __init__(self) -> None:
        self._silent: set[str] = set()
        self._before: set[Place] = set()
        """Brokers that were silent at the last look."""
        self._said: set[Place] = set()

    def of(self, look: Look) -> Iterator[str]:
        """Yield what is new with this look, a sentence each."""
        silent = {address for address, each in look.listings.items() if each is None}
        if silent - self._silent:
            others = "those that others list are observed"
            if len(silent) == len(look.listings):
                others = "brokers are asked where they were"
            yield f"name server {_all(silent)} does not answer: {others}"
        self._silent = silent
        now = {broker.place for broker in look.brokers if broker.state == SILENT}
        for broker in look.brokers:
            # Once is what a process that dies looks like, too.
            if broker.place in now & self._before - self._said:
                self._said.add(broker.place)
                yield (
                    f"{broker.place.text} is not seen: {broker.problem}; until it is, that is a"
                    " gap, and the others are observed"
                )
        self._said &= now
        self._before = now


def _all(names: Set[str]) -> str:
    return ", ".join(sorted(names))
