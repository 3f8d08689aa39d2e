"""``kubectl failback hold``: keep members down, or release them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

from failback.chaos.targets.kube.members import HOLD_ANNOTATION, held_members, with_hold
from failback.cli.kubectl.access import (
    HERE,
    Access,
    ClusterArgument,
    Where,
    command,
    member_name,
    names_of,
)
from failback.cli.shared.options import JsonOption, argument, flag
from failback.cli.shared.output import note, print_json, say
from failback.common.text import did_you_mean
from failback.protocol.errors import ConfigError

_TRIES: Final = 10


@command(
    "hold",
    "kubectl failback hold orders orders-0-1             keep it down",
    "kubectl failback hold orders orders-0-1 --release   let it come back",
    "kubectl failback hold orders                        who is held",
)
def hold(
    cluster: ClusterArgument,
    member: Annotated[str, argument("MEMBER", "Name of the member, such as orders-0-1.")] = "",
    release: Annotated[bool, flag("--release", "Let it come back.")] = False,
    where: Where = HERE,
    json: JsonOption = False,
) -> None:
    """Keep a member of a cluster down until it is released, or show who is held."""
    if release and not member:
        raise ConfigError("MEMBER", "is missing: who is released?")
    with where.access() as api:
        item = api.need("BrokerCluster", cluster)
        if member:
            name = _checked(item, member)
            item = _set(api, item, name, on=not release)
            if not release:
                _warn_of_master(item, name)
    held = held_members(item)
    if json:
        print_json({"cluster": cluster, "held": held})
    else:
        say(f"{cluster}: held: {', '.join(held) or 'none'}")


def _checked(item: Mapping[str, Any], word: str) -> str:
    """Return the member's name that its own, its StatefulSet's or its pod's name means."""
    members = _members(item)
    found = next((each.name for each in members if word in each.names), None)
    if found is not None:
        return found
    if not members or word in held_members(item):  # also one that has left the status
        return word
    known = [each.name for each in members]
    near = did_you_mean(word, known) or f"; it has: {', '.join(known)}"
    raise ConfigError("MEMBER", f'no member "{word}"{near}')


class _Member(NamedTuple):
    name: str
    names: tuple[str, ...]
    is_master: bool


def _members(item: Mapping[str, Any]) -> list[_Member]:
    """Return every member that the status names."""
    return [
        _Member(
            member_name(pair, int(each["ordinal"])),
            names_of(item, pair, int(each["ordinal"])),
            each["ordinal"] == pair.get("masterMember"),
        )
        for pair in (item.get("status") or {}).get("pairs") or ()
        for each in pair.get("members") or ()
    ]


def _set(api: Access, item: dict[str, Any], member: str, *, on: bool) -> dict[str, Any]:
    """Write the annotation; other writers may change it at the same time."""
    from failback.kube.errors import ApiError

    name = str(item["metadata"]["name"])
    for _ in range(_TRIES):
        value = with_hold(item, member, on=on)
        version = item["metadata"]["resourceVersion"]
        patch = {"metadata": {"annotations": {HOLD_ANNOTATION: value}, "resourceVersion": version}}
        try:
            return api.kube.merge("BrokerCluster", api.namespace, name, patch)
        except ApiError as error:
            if error.code != 409:
                raise
        item = api.need("BrokerCluster", name)
    raise ConfigError("CLUSTER", f"{name} is written by others all the time; try again")


def _warn_of_master(item: Mapping[str, Any], member: str) -> None:
    if any(each.is_master for each in _members(item) if each.name == member):
        note(f"{member} is its pair's master: the pair takes no messages until it is released")
