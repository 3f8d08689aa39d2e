"""Facts of an observation: registered brokers, slaves that lag, members that are ahead. Pure.

Conditions, status and predicates read them, so that all of them mean the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from failback.common.numbers import whole
from failback.operator.engines.catalogue import config_keys, same_value
from failback.operator.planning.observed.observed import Broker, MemberView, Object, ObservedCluster
from failback.operator.render.common import GATE

FALL_BEHIND_BYTES: Final = 256 * 1024 * 1024
"""``haSlaveFallbehindMax`` where the broker does not say otherwise."""
STALL_SECONDS: Final = 15.0
"""A slave that is behind and has not moved for so long is not replicating."""
_MOST_TEXTS: Final = 4096
"""Files whose properties are remembered: they are read again in every pass and hardly change."""
ZERO, UNDER_1MI, UNDER_256MI = "Zero", "Under1Mi", "Under256Mi"
FALLEN_BEHIND, UNKNOWN = "FallenBehind", "Unknown"


def properties(config_map: Object | None, file: str = "broker.conf") -> Mapping[str, str]:
    """Return the properties in a ConfigMap of ours, to be read only; empty when there is none."""
    return _properties_of(str((config_map or {}).get("data", {}).get(file, "")))


@lru_cache(maxsize=_MOST_TEXTS)
def _properties_of(text: str) -> Mapping[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key: value for key, equals, value in pairs if equals}


def is_stopped(member: MemberView) -> bool:
    """Tell whether a member has no pod, and gets none."""
    if member.pod is not None:
        return False
    found = member.statefulset
    return found is None or (found["spec"].get("replicas", 1) == 0 and controller_has_seen(found))


def is_gated(member: MemberView) -> bool:
    """Tell whether a member's pod, or the one it gets, only reads where its log ends."""
    metadata = member.statefulset["spec"]["template"]["metadata"] if member.statefulset else {}
    marks = metadata.get("annotations") or {}
    return GATE in marks or (member.pod is not None and member.pod.gated)


def controller_has_seen(statefulset: Object) -> bool:
    """Tell whether the controller acts on these replicas: it may still be making a pod."""
    status = statefulset.get("status") or {}
    seen = status.get("observedGeneration", 0) >= statefulset["metadata"].get("generation", 0)
    return bool(seen and not status.get("replicas", 0))


def announced_addresses(member: MemberView) -> frozenset[str]:
    """Return the addresses under which a member of ours registers: by its answer, by its file."""
    sources = [properties(member.config_map)]
    if member.broker is not None and member.broker.config is not None:
        sources.append(dict(member.broker.config))
    found = {f"{item['brokerIP1']}:{item['listenPort']}" for item in sources if "brokerIP1" in item}
    if member.pod is not None and member.pod.ip:
        port = sources[-1].get("listenPort", "10911")
        found.add(f"{member.pod.ip}:{port}")
    return frozenset(found)


def pair_addresses(observed: ObservedCluster, pair: int) -> frozenset[str]:
    """Return the addresses of all members of a pair."""
    found: set[str] = set()
    for (index, _), member in observed.members.items():
        if index == pair:
            found |= announced_addresses(member)
    return frozenset(found)


def registrations(observed: ObservedCluster, broker_name: str) -> dict[int, set[str]]:
    """Return broker id → addresses, over all name servers that answer."""
    found: dict[int, set[str]] = {}
    for route in observed.routes:
        for broker_id, address in (route.brokers or {}).get(broker_name, {}).items():
            found.setdefault(broker_id, set()).add(address)
    return found


def routes_known(observed: ObservedCluster) -> bool:
    """Tell whether any name server answered."""
    return any(route.brokers is not None for route in observed.routes)


def is_registered(
    observed: ObservedCluster, broker_name: str, member: MemberView, broker_id: int
) -> bool:
    """Tell whether an answering name server lists the member under its id."""
    found = registrations(observed, broker_name).get(broker_id, set())
    return bool(found & announced_addresses(member))


def says_master(broker: Broker | None) -> bool | None:
    """Tell whether a broker itself says that it is a master (26); ``None`` while unknown."""
    if broker is None or broker.config is None:
        return None
    return broker.config.get("brokerRole", "ASYNC_MASTER") != "SLAVE"


def lag_bytes(master: Broker | None, slave: Broker | None) -> int | None:
    """Return the master's end minus the slave's, negative when the slave is ahead."""
    if master is None or slave is None or master.end is None or slave.end is None:
        return None
    return master.end - slave.end


def is_stalled(slave: Broker | None, now: float) -> bool:
    """Tell whether a slave is behind and has not moved for a while."""
    since = slave.stalled_since if slave else None
    return since is not None and now - since > STALL_SECONDS


def fall_behind_bytes(master: Broker | None) -> int:
    """Return the lag from which the master counts a slave out."""
    text = (master.config or {}).get("haSlaveFallbehindMax", "") if master else ""
    found = whole(text)
    return FALL_BEHIND_BYTES if found is None else found


def lag_bucket(
    master: Broker | None, slave: Broker | None, previous: str | None, now: float
) -> str:
    """Return the lag as a word that does not change while a slave merely keeps pace.

    Under traffic a slave is always a few bytes behind; it stays in its bucket below 1 MiB
    until it stalls.
    """
    lag = lag_bytes(master, slave)
    if lag is None:
        return UNKNOWN
    if lag >= fall_behind_bytes(master):
        return FALLEN_BEHIND
    if lag >= 1024 * 1024:
        return UNDER_256MI
    if lag <= 0:
        return ZERO
    if is_stalled(slave, now):
        return UNDER_1MI
    return previous if previous in (ZERO, UNDER_1MI) else ZERO


def in_sync(master: Broker | None, slave: Broker | None, now: float) -> bool:
    """Tell whether a slave is below FallenBehind, and at the end or moving."""
    lag = lag_bytes(master, slave)
    return lag is not None and lag < fall_behind_bytes(master) and not is_stalled(slave, now)


@dataclass(frozen=True, slots=True)
class Metadata:
    """How a slave's tables compare with its master's; ``None`` = not known."""

    missing_topics: tuple[str, ...] = ()
    missing_groups: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    """``topic@group`` whose offset on the slave is below the master's of three periods ago."""
    ahead: tuple[str, ...] = ()
    """``topic@group`` whose offset on the slave is above the master's."""
    ahead_messages: int = 0

    @property
    def equal(self) -> bool:
        """Topics and groups agree."""
        return not self.missing_topics and not self.missing_groups


def compare_metadata(master: Broker | None, slave: Broker | None) -> Metadata | None:
    """Compare a slave's topics, groups and offsets with its master's."""
    if master is None or slave is None:
        return None
    tables = (master.topics, slave.topics, master.groups, slave.groups)
    if any(table is None for table in (*tables, master.offsets, slave.offsets)):
        return None
    ahead, surplus = _ahead(slave.offsets or {}, master.offsets or {})
    return Metadata(
        missing_topics=_differing(master.topics or {}, slave.topics or {}),
        missing_groups=_differing(master.groups or {}, slave.groups or {}),
        stale=_ahead(master.offsets_before or {}, slave.offsets or {})[0],
        ahead=ahead,
        ahead_messages=surplus,
    )


def _differing(master: Mapping[str, object], slave: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(sorted(name for name, value in master.items() if slave.get(name) != value))


def _ahead(
    one: Mapping[str, Mapping[int, int]], other: Mapping[str, Mapping[int, int]]
) -> tuple[tuple[str, ...], int]:
    """Return where ``one`` is above ``other``, and by how many messages altogether."""
    found, surplus = [], 0
    for key, queues in one.items():
        theirs = other.get(key, {})
        above = [offset - theirs.get(queue, 0) for queue, offset in queues.items()]
        more = sum(number for number in above if number > 0)
        if more:
            found.append(key)
            surplus += more
    return tuple(sorted(found)), surplus


def is_contested(observed: ObservedCluster, pair: int, broker_name: str) -> bool:
    """Tell whether two or more processes act as master of a pair, a stranger among them or not."""
    own = claims_to_be_master(observed, pair)
    return len(own) > 1 or bool(own and foreign_addresses(observed, pair, broker_name, ids=(0,)))


def live_hash(member: MemberView) -> str:
    """Return 8 hex digits over the live keys of the member's file that its answer confirms."""
    wanted = properties(member.config_map)
    answer = (member.broker.config if member.broker else None) or {}
    live = [
        key for key in sorted(wanted) if (row := config_keys().get(key)) and row.change == "live"
    ]
    verified = [key for key in live if same_value(key, answer.get(key, ""), wanted[key])]
    if not verified:
        return ""
    text = "".join(f"{key}={wanted[key]}\n" for key in verified)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def claims_to_be_master(observed: ObservedCluster, pair: int) -> tuple[MemberView, ...]:
    """Return the members of a pair that say themselves that they are master."""
    return tuple(
        member
        for (index, _), member in sorted(observed.members.items())
        if index == pair and says_master(member.broker)
    )


def foreign_addresses(
    observed: ObservedCluster, pair: int, broker_name: str, ids: Iterable[int] | None = None
) -> tuple[str, ...]:
    """Return addresses registered under the pair's name that belong to none of its members."""
    own = pair_addresses(observed, pair)
    found = {
        address
        for broker_id, addresses in registrations(observed, broker_name).items()
        if ids is None or broker_id in ids
        for address in addresses
    }
    if ids is None or 0 in ids:
        found |= set(observed.recent_masters.get(pair, ()))
    return tuple(sorted(found - own))


def has_carry(statefulset: Object) -> bool:
    """Tell whether a member's pods have the sidecar that gives offsets to a starting master."""
    inits = statefulset["spec"]["template"]["spec"].get("initContainers", ())
    return any(each["name"] == "carry" for each in inits)


def broker_arguments(statefulset: Object | None) -> Sequence[str]:
    """Return the arguments of the broker's container; none without a StatefulSet."""
    if statefulset is None:
        return ()
    found: Sequence[str] = statefulset["spec"]["template"]["spec"]["containers"][0].get("args", ())
    return found
