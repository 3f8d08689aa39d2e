"""How far access control and TLS may be switched on or off now. Pure.

Members change one after the other, and go on talking with each other. So first all take both kinds
of requests and connections. Then all speak TLS. Then none takes anything else. Switching off goes
the other way. What a member's file says already is not taken back because another member is silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import MemberView, ObservedCluster
from failback.operator.render.config import restart_hash
from failback.operator.render.members import ACL_MODE, APACHE_TLS, FAILBACK_TLS
from failback.operator.render.shape import Guarding, wanted_guarding

_ACL: Final = "aclEnable"


def guarding_of(cluster: BrokerCluster, observed: ObservedCluster) -> Guarding | None:
    """Return what may be rendered now; ``None``: what the spec wants in the end.

    A cluster without members gets that at once.
    """
    wanted, members = wanted_guarding(cluster), _members(cluster, observed)
    if not members:
        return None
    acl, acl_mode = _access_control(cluster, observed, wanted, members)
    tls, own_tls = _tls(cluster, observed, wanted, members) if wanted.tls else ("", False)
    found = Guarding(acl, acl_mode, tls, own_tls)
    return None if found == wanted else found


def is_done(
    cluster: BrokerCluster, observed: ObservedCluster, guarding: Guarding, *, tls: bool
) -> bool | None:
    """Return whether all members do what is rendered; ``None``: one is silent, the others do.

    Args:
        tls: Asked about TLS, not about access control.
    """
    said = [each for _, each in _members(cluster, observed)]
    known = [each for each in said if each is not None]
    wanted = (guarding.tls, guarding.own_tls) if tls else (guarding.acl, guarding.acl_mode)
    if any(((each.takes, each.speaks) if tls else each.acl) != wanted for each in known):
        return False
    return True if len(known) == len(said) else None


def removed_too_early(cluster: BrokerCluster, observed: ObservedCluster) -> str:
    """Return why a field may not be removed yet; empty if it may."""
    spec, files = cluster.spec, [file for file, _ in _members(cluster, observed)]
    on = any(file.get(_ACL) == "true" and file.get(ACL_MODE, "enforce") != "off" for file in files)
    if spec.acl is None and on:
        return _too_early("acl", "Off")
    mode, own = _names(cluster)
    on = any(file.get(mode, "disabled") != "disabled" or file.get(own) == "true" for file in files)
    return _too_early("tls", "Disabled") if spec.tls is None and on else ""


def _too_early(field: str, off: str) -> str:
    return (
        f"spec.{field}: was removed while it is on: write it again with mode {off}, and remove it"
        f" when the condition says {off}"
    )


@dataclass(frozen=True, slots=True)
class _Said:
    """What a member's broker does."""

    acl: tuple[bool, str]
    """``aclEnable``, and ``failbackAclMode`` with it."""
    takes: str
    """Connections: ``disabled``, ``permissive``, ``enforcing``."""
    speaks: bool
    """TLS on its own connections."""


_Members = list[tuple[Mapping[str, str], _Said | None]]
"""The file of each member, and what its broker does; ``None``: not known."""


def _members(cluster: BrokerCluster, observed: ObservedCluster) -> _Members:
    """Return what is known of all members that have a file."""
    found = []
    for view in observed.members.values():
        if view.config_map is not None:
            file = facts.properties(view.config_map)
            found.append((file, _said(cluster, view, file)))
    return found


def _said(cluster: BrokerCluster, view: MemberView, file: Mapping[str, str]) -> _Said | None:
    """Return what a running broker does, or one that is stopped will do.

    One of Failback answers. One of Apache is as its pod was made.
    """
    mode, own = _names(cluster)
    values: Mapping[str, str] | None = file
    if not facts.is_stopped(view):
        if cluster.spec.engine.program == "apache":
            made = view.pod is not None and view.pod.restart_hash == restart_hash(file)
            values = file if made and view.is_ready else None
        else:
            values = view.broker.config if view.broker is not None else None
    if values is None:
        return None
    takes = values.get(mode, "file")
    if not _has_certificate(view):
        takes = "disabled"
    elif takes == "file":  # what a broker with a certificate does without a line
        takes = "permissive"
    on = values.get(_ACL) == "true"
    return _Said((on, values.get(ACL_MODE, "") if on else ""), takes, values.get(own) == "true")


def _has_certificate(view: MemberView) -> bool:
    """Tell whether a member's pod was made with the Secret of a certificate."""
    statefulset, pod = view.statefulset, view.pod
    if statefulset is None:
        return False
    volumes = statefulset["spec"]["template"]["spec"]["volumes"]
    sources = [
        source for each in volumes for source in each.get("projected", {}).get("sources", ())
    ]
    files = [item["key"] for each in sources for item in each.get("secret", {}).get("items", ())]
    newest = statefulset.get("status", {}).get("updateRevision", "")
    seen = statefulset.get("status", {}).get("observedGeneration", 0)
    is_newest = pod is None or pod.revision == newest
    return "tls.crt" in files and is_newest and seen >= statefulset["metadata"].get("generation", 0)


def _access_control(
    cluster: BrokerCluster, observed: ObservedCluster, wanted: Guarding, members: _Members
) -> tuple[bool, str]:
    on = any(file.get(_ACL) == "true" for file, _ in members)
    if cluster.spec.acl is None:
        # A broker that was not restarted yet would enforce without this line, its default.
        waits = any(ACL_MODE in file for file, _ in members) and not all(
            said is not None and not said.acl[0] for _, said in members
        )
        return False, "off" if waits else ""
    if cluster.spec.engine.program == "apache":
        return wanted.acl and (on or observed.has_key), ""
    enforced = on and any(file.get(ACL_MODE) == "enforce" for file, _ in members)
    checked = all(said is not None and said.acl[0] for _, said in members)
    if wanted.acl_mode != "enforce" or enforced or (checked and observed.has_key):
        return True, wanted.acl_mode
    return True, "warn"


def _tls(
    cluster: BrokerCluster, observed: ObservedCluster, wanted: Guarding, members: _Members
) -> tuple[str, bool]:
    mode, own = _names(cluster)
    takes = [None if said is None else said.takes for _, said in members]
    speaks = [None if said is None else said.speaks for _, said in members]
    modes = {file.get(mode) for file, _ in members}
    owns = {file.get(own) for file, _ in members}
    if wanted.tls == "disabled":
        stops = "false" in owns or all(each in ("permissive", "disabled") for each in takes)
        off = "disabled" in modes or not any(each is not False for each in speaks)
        return "disabled" if off else "permissive", not stops
    both = all(each in ("permissive", "enforcing") for each in takes)
    starts = "true" in owns or (both and observed.name_servers_take_tls)
    strict = "enforcing" in modes or all(speaks)
    found = "permissive" if wanted.tls == "enforcing" and not strict else wanted.tls
    if cluster.spec.engine.program == "failback" and not (
        both or modes & {"permissive", "enforcing"}
    ):
        found = ""  # a broker whose pod has no certificate yet could not do it
    return found, starts


def _names(cluster: BrokerCluster) -> tuple[str, str]:
    return APACHE_TLS if cluster.spec.engine.program == "apache" else FAILBACK_TLS
