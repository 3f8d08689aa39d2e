"""Access control and TLS of a cluster as conditions and events. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any, Final

from failback.operator.planning.cluster.view import ClusterView
from failback.operator.planning.observed.observed import MemberView
from failback.operator.planning.plan.encoding import Verdict, find_condition, names
from failback.operator.planning.plan.types import Event
from failback.operator.planning.state import restarts
from failback.operator.planning.state.guard_stages import is_done
from failback.operator.render.shape import wanted_guarding

ACCESS, TLS = KINDS = ("AccessControl", "TLS")
SAYS: Final = {
    "Off": "no request is checked",
    "Warn": "what would be refused is counted",
    "Enforce": "requests are checked",
    "Disabled": "plain connections alone are taken",
    "Permissive": "plain connections are taken, too",
    "Enforcing": "TLS alone is taken",
}
"""Mode of ``spec.acl`` or ``spec.tls`` → what it does."""
_EXPIRES: Final = "failback_tls_certificate_not_after_timestamp_seconds"
_SOON_SECONDS: Final = 7 * 86_400.0


def verdicts(view: ClusterView) -> Iterator[Verdict]:
    """Yield how far access control and TLS are switched on; nothing where they never were."""
    spec = view.cluster.spec
    wanted = wanted_guarding(view.cluster)
    now = view.shape.guarding or wanted
    members = [each for each in view.members if restarts.reasons(each)]
    waits = names([view.member_name(each) for each in members])
    for kind, given in ((ACCESS, spec.acl), (TLS, spec.tls)):
        if given is None:
            if find_condition(view.previous, kind) is not None:
                yield Verdict(kind, True, "Off", "not asked for")
            continue
        reached = (
            (now.acl, now.acl_mode) == (wanted.acl, wanted.acl_mode)
            if kind == ACCESS
            else (now.tls, now.own_tls) == (wanted.tls, wanted.own_tls)
        )
        done = is_done(view.cluster, view.observed, now, tls=kind == TLS)
        if waits:
            yield Verdict(kind, False, "Changing", f"needs a restart: {waits}")
        elif not reached:
            yield Verdict(kind, False, *_why_not_yet(view, kind))
        elif done is False:
            yield Verdict(kind, False, "Changing", "members take up the new mode")
        elif done is None:
            yield Verdict(kind, None, "UnableToRetrieve", "some members do not answer")
        elif kind == TLS and (late := _expiring(view)):
            yield Verdict(kind, False, "CertificateExpires", late)
        else:
            yield Verdict(kind, True, given.mode, SAYS[given.mode])


def _why_not_yet(view: ClusterView, kind: str) -> tuple[str, str]:
    observed, cluster = view.observed, view.cluster
    if kind == ACCESS and not observed.has_key:
        file = f"{cluster.namespace}.{cluster.name}.tools.yml"
        return "NoOwnKey", f"the operator cannot sign: add {file} to the chart's access.secretName"
    if kind == TLS and not observed.name_servers_take_tls:
        return "NameServersPlain", "its NameServer does not take TLS on all its pods: set spec.tls"
    return "Changing", "some members have not answered that they are ready for the next step"


def _expiring(view: ClusterView) -> str:
    """Return which certificates end within a week, or have ended."""
    ends = [(view.member_name(each), end) for each in view.members if (end := _not_after(each))]
    late = [(name, end) for name, end in ends if end - view.now < _SOON_SECONDS]
    if not late:
        return ""
    first = datetime.datetime.fromtimestamp(min(end for _, end in late), datetime.UTC)
    return f"renew the certificate of {names([name for name, _ in late])}: until {first:%Y-%m-%d}"


def _not_after(member: MemberView) -> float | None:
    broker = member.broker
    return None if broker is None or broker.metrics is None else broker.metrics.get(_EXPIRES)


def events(previous: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Event]:
    """Yield an event when access control or TLS came to what is wanted, or is kept from it."""
    for kind in KINDS:
        now, before = find_condition(new, kind), find_condition(previous, kind)
        if now is None or now["reason"] in ("Changing", "UnableToRetrieve"):
            continue
        if before is None or before["reason"] != now["reason"]:
            text = f"{now['reason']}: {now['message']}"
            yield Event(kind, text, warning=now["status"] != "True")
