"""Which member of a kept pair starts as master: files beside the stores, as marks on claims.

``claims/CLAIM/mark.json`` has the last role of the member, and the epoch of its master. The rule
that chooses the master is the one of Kubernetes (``planning.state.mastership``); where logs end is
read from them. Where it finds none, no member starts. A claim's uid is the member's name here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from failback.broker.store.log.tail import read_tail
from failback.operator.kinds.base import Resource
from failback.operator.kinds.broker_cluster import BrokerCluster, PairOverride
from failback.operator.local.root import Root, read_json, write_json
from failback.operator.planning.observed.observed import Claim, MemberView, Pod
from failback.operator.planning.state.decode import GATED
from failback.operator.planning.state.mastership import MASTER, SLAVE, Mastership, mastership
from failback.operator.render.members import claim_name, member_name
from failback.protocol.errors import ConfigError

Masters = dict[tuple[str, int], Mastership]
"""Name of the cluster and pair → its master."""
_FILE: Final = "mark.json"


def masters_of(items: Sequence[Resource], root: Root) -> Masters:
    """Return the master of every pair that has kept stores.

    Raises:
        ConfigError: The marks do not say which; the message says what to do.
    """
    statuses: Mapping[str, Any] = read_json(root.status_file) or {}
    found: Masters = {}
    for cluster in items:
        if not isinstance(cluster, BrokerCluster) or cluster.spec.storage.type != "Persistent":
            continue
        rows = statuses.get(cluster.label, {}).get("pairs") or ()
        for pair in range(cluster.spec.pairs):
            views = [_view(cluster, pair, ordinal, root) for ordinal in cluster.pair(pair).ordinals]
            row = [row for row in rows if row.get("index") == pair]
            known = mastership(cluster, pair, views, row[0] if row else {})
            if known.unclear:
                raise ConfigError(f"local: {cluster.label}", f"MasterUnclear: {known.unclear}")
            found[cluster.name, pair] = known
    return found


def with_masters(
    items: Sequence[Resource], masters: Masters, log: Callable[[str], None]
) -> tuple[Resource, ...]:
    """Return the resources with the actual ``masterMember``, not the one of their files."""
    return tuple(
        _with_masters(item, masters, log) if isinstance(item, BrokerCluster) else item
        for item in items
    )


def _with_masters(
    cluster: BrokerCluster, masters: Masters, log: Callable[[str], None]
) -> BrokerCluster:
    overrides = {item.index: item for item in cluster.spec.pair_overrides}
    for pair in range(cluster.spec.pairs):
        known = masters.get((cluster.name, pair))
        if known is None or known.member == cluster.pair(pair).master_member:
            continue
        wish = cluster.pair(pair).first_master
        if wish is not None:
            name = cluster.broker_name(pair)
            log(f"{name}: masterMember {wish} names the first master only, it is {known.member}")
        have = overrides.get(pair) or PairOverride.model_validate({"index": pair})
        overrides[pair] = have.model_copy(update={"master_member": known.member})
    spec = cluster.spec.model_copy(update={"pair_overrides": list(overrides.values())})
    return cluster.model_copy(update={"spec": spec})


def mark(
    items: Sequence[Resource], masters: Masters, root: Root, *, slaves_follow: bool = False
) -> None:
    """Write the mark of every store: before a member starts, and again once slaves follow."""
    for cluster in items:
        if not isinstance(cluster, BrokerCluster):
            continue
        for pair in range(cluster.spec.pairs):
            known = masters.get((cluster.name, pair))
            for ordinal in cluster.pair(pair).ordinals if known is not None else ():
                assert known is not None
                is_master = ordinal == known.member
                before = _claim(cluster, pair, ordinal, root).epoch or 0
                follows = is_master or slaves_follow
                folder = root.claim_dir(claim_name(cluster, pair, ordinal))
                folder.mkdir(parents=True, exist_ok=True)
                value = {
                    "role": MASTER if is_master else SLAVE,
                    "epoch": known.epoch if follows else min(before, known.epoch),
                    "logId": known.log_id,
                }
                if value != read_json(folder / _FILE):
                    write_json(folder / _FILE, value)


def _view(cluster: BrokerCluster, pair: int, ordinal: int, root: Root) -> MemberView:
    claim = _claim(cluster, pair, ordinal, root)
    end = read_tail(root.claim_dir(claim.name) / "commitlog", 1).end
    pod = Pod(claim.name, "", prefix=GATED, own_end=end, gated=True)
    return MemberView(pair, ordinal, claim=claim, pod=pod)


def _claim(cluster: BrokerCluster, pair: int, ordinal: int, root: Root) -> Claim:
    name, uid = claim_name(cluster, pair, ordinal), member_name(cluster, pair, ordinal)
    folder = root.claim_dir(name)
    said: Mapping[str, Any] = read_json(folder / _FILE) or {}
    epoch = said.get("epoch")
    return Claim(
        name,
        uid,
        empty=not said and not any((folder / "commitlog").glob("*")),
        role=str(said.get("role", "")),
        epoch=epoch if isinstance(epoch, int) else None,
        log_id=str(said.get("logId", "")),
        marked_uid=uid,
    )
