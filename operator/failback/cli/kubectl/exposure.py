"""``kubectl failback exposure``: what a kill of a master now would make groups re-consume."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from failback.cli.kubectl.access import HERE, Access, ClusterArgument, Where, command
from failback.cli.shared.asking import Unreachable
from failback.cli.shared.errors import INCONCLUSIVE
from failback.cli.shared.options import JsonOption, flag, option
from failback.cli.shared.output import note, print_json, print_table, say
from failback.common.numbers import count

if TYPE_CHECKING:
    from failback.analytics.dashboard.sources.brokers import BrokerSeen
    from failback.analytics.dashboard.sources.clusters import ClusterRef, MemberRef

_PORT: Final = 10911
_DOMAIN: Final = "cluster.local"
_ANSWER_MS: Final = 10_000
"""A way through the API server is longer than one within a cluster."""


@command(
    "exposure",
    "kubectl failback exposure orders",
    "kubectl failback exposure orders --direct    from inside the cluster",
)
def exposure(
    cluster: ClusterArgument,
    seconds: Annotated[
        float, option("--seconds", "SECONDS", "How long rates are measured.", min=6, max=60)
    ] = 10.0,
    direct: Annotated[
        bool, flag("--direct", "Ask members at their own addresses, not through the API server.")
    ] = False,
    where: Where = HERE,
    json: JsonOption = False,
) -> None:
    """Show, by group and pair, how many messages would be re-consumed if the master died now.

    Asks the brokers twice, because it takes each group's rate. They are reached as by
    `kubectl port-forward`; the figures are the dashboard's. Ends with 3 when a member did not
    answer: then its part is missing.
    """
    with where.access() as api:
        ref = cluster_ref(api, cluster)
        with reached(api, ref, direct=direct) as (found, problems):
            pairs = asyncio.run(_measured(found, seconds))
    tell(cluster, pairs, problems, as_json=json)


def tell(
    cluster: str, pairs: list[dict[str, Any]], problems: Mapping[str, str], *, as_json: bool
) -> None:
    """Show the figures, and name each member without an answer.

    Args:
        cluster: Its name.
        pairs: As the dashboard has them.
        problems: Why a member could not be reached, by pod.
        as_json: For machines.

    Raises:
        Unreachable: No master answers.
        Exit: With 3, when a member did not answer.
    """
    silent = [each for pair in pairs for each in pair["members"] if not each["answered"]]
    for each in silent:
        why = problems.get(each["member"]) or each["problem"]
        note(f"{each['member']} does not answer: {why}")
    if as_json:
        print_json({"cluster": cluster, "pairs": pairs})
    else:
        _show(pairs)
    if pairs and all(not pair["groups"] and pair["state"] == "down" for pair in pairs):
        raise Unreachable(f"no master of {cluster} answers")
    if silent:
        raise typer.Exit(INCONCLUSIVE)


def cluster_ref(api: Access, cluster: str) -> ClusterRef:
    """Return a cluster's pairs and members: as its status has them, the others by its spec."""
    from failback.analytics.dashboard.sources.kube_clusters import clusters_of_resources

    item = api.need("BrokerCluster", cluster)
    (found,) = clusters_of_resources(api.list_all("NameServer"), [item], api.namespace)
    found = with_all_members(found, item)
    if not found.members:
        raise Unreachable(f"the status of {cluster} names no pair yet")
    return found


def with_all_members(found: ClusterRef, item: Mapping[str, Any]) -> ClusterRef:
    """Add the members that a status leaves out because they are well: those of many pairs."""
    from failback.analytics.dashboard.sources.clusters import MemberRef
    from failback.analytics.dashboard.sources.kube_clusters import HTTP_PORT
    from failback.chaos.targets.kube.members import places

    has_http = found.engine.startswith("failback")
    pairs = []
    for pair in found.pairs:
        known = {member.name for member in pair.members}
        more = tuple(
            MemberRef(
                each.pod,
                each.broker_name,
                each.address,
                http=f"{each.address.rpartition(':')[0]}:{HTTP_PORT}" if has_http else "",
            )
            for each in places(item, (), _DOMAIN)
            if each.broker_name == pair.name and each.pod not in known
        )
        pairs.append(replace(pair, members=(*pair.members, *more)))
    return replace(found, pairs=tuple(pairs))


@contextmanager
def reached(
    api: Access, cluster: ClusterRef, *, direct: bool
) -> Iterator[tuple[ClusterRef, Mapping[str, str]]]:
    """Give a cluster whose members can be reached from here, and why those that cannot, by pod."""
    if direct:
        yield cluster, {}
        return
    from failback.kube.forwarding import Forwards

    with Forwards(api.kube.configuration, api.namespace) as forwards:

        def forwarded(member: MemberRef) -> MemberRef:
            port = member.address.rpartition(":")[2]
            near = forwards.open(member.name, int(port) if port.isdecimal() else _PORT)
            http = member.http.rpartition(":")[2]
            local = forwards.open(member.name, int(http)) if http else ""
            return replace(member, address=near, http=local)

        pairs = tuple(
            replace(pair, members=tuple(forwarded(each) for each in pair.members))
            for pair in cluster.pairs
        )
        yield replace(cluster, pairs=pairs), forwards.problems


async def _measured(cluster: ClusterRef, seconds: float) -> list[dict[str, Any]]:
    """Ask all members twice; return a document of each pair, as the dashboard's."""
    from failback.analytics.dashboard.sources.brokers import look_at
    from failback.analytics.dashboard.views.fleet import committed, pair_document, pairs_of
    from failback.analytics.live.rates import Counts, rates
    from failback.client.admin.admin import AdminClient
    from failback.client.remoting.connection import RemotingSettings
    from failback.client.remoting.guarded.cluster import Given, find_cluster

    async def look(known: Mapping[str, BrokerSeen]) -> dict[str, BrokerSeen]:
        looks = (look_at(admin, each, known.get(each.address)) for each in cluster.members)
        return {each.member.address: each for each in await asyncio.gather(*looks)}

    settings = RemotingSettings(access=find_cluster(Given()).access)
    async with AdminClient([], timeout_ms=_ANSWER_MS, settings=settings) as admin:
        before = await look({})
        if not all(each.answered for each in before.values()):  # a way is slow when it is new
            before = await look(before)
        await asyncio.sleep(seconds)
        after = await look(before)
    measured = {}
    for old, new in zip(pairs_of(cluster, before), pairs_of(cluster, after), strict=True):
        counts = [
            Counts(max(each.at for each in brokers), committed(brokers))
            for pair in (old, new)
            if (brokers := [each for each in pair.brokers if each.answered])
        ]
        if len(counts) == 2:
            measured[cluster.key, new.broker_name] = rates(*counts)
    now = time.time()
    return [pair_document(each, measured, now) for each in pairs_of(cluster, after)]


def _show(pairs: list[dict[str, Any]]) -> None:
    rows = [
        (
            pair["pair"],
            group["group"],
            group["topic"],
            None if group["rate"] is None else f"{group['rate']:,.1f}",
            _figure(group["lag"]),
            _figure(group["after_return"]),
            _figure(group["on_slave"]),
        )
        for pair in pairs
        for group in pair["groups"]
    ]
    away = [pair["pair"] for pair in pairs if pair["state"] == "down"]
    if away:
        say(f"Not known, because no master answers: {', '.join(away)}.")
    if not rows:
        where = "any other pair" if away else "any pair"
        say(f"No group has an offset on {where}: nothing would be re-consumed.")
        return
    headers = ("PAIR", "GROUP", "TOPICS", "MESSAGES/S", "BEHIND", "AFTER RETURN", "ON SLAVE")
    print_table(headers, rows)
    say("Messages that would be re-consumed if the master were killed now and consumers restarted")
    say("after its return, or while it is down and its slave answers.")
    broadcasting = {
        group["group"] for pair in pairs for group in pair["groups"] if group["broadcasting"]
    }
    for group in sorted(broadcasting):
        say(f"{group} broadcasts: its members keep their own offsets.")
    for pair in pairs:
        if pair["overwrite_in_seconds"] is not None:
            say(f"{pair['pair']}: its slave knows more than its master, which overwrites it soon.")


def _figure(value: float | None) -> str | None:
    return None if value is None else count(value)
