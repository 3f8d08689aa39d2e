"""An operator under the chart's Role less one right, sent for what cannot be had without it.

It has to say so (``/readyz``, a condition, its metrics or its log), and what it was sent for does
not come. Then the right is given back, and it comes: :func:`forfeit`.
"""

from __future__ import annotations

import re
import time
import urllib.error
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.proxy import MisbehavingProxy
from tests.support.operator.operator_killer import witnessed_operator
from tests.support.operator.operator_process import OperatorProcess, chart_rules, condition_of
from tests.support.operator.optional_kinds import OPTIONAL, SETTINGS
from tests.support.operator.rights import Right, rights_of, without

_WAIT_SCALE: Final = 0.1
_TOLD_SECONDS: Final = 180.0
_COME_SECONDS: Final = 240.0
_STAY_SECONDS: Final = 1.0


@dataclass
class Place:
    """Where an operator lives without one of its rights."""

    namespace: Namespace
    running: OperatorProcess
    proxy: MisbehavingProxy | None
    stack: ExitStack

    def create(self, *manifests: Object) -> None:
        for manifest in manifests:
            self.namespace.api.create(manifest)

    def find(self, kind: str, name: str) -> Object:
        """Return an object; empty when there is none."""
        return self.namespace.api.find(kind, name) or {}

    def uid(self, kind: str, name: str) -> str:
        return str(self.find(kind, name).get("metadata", {}).get("uid", ""))

    def mark(self, name: str, value: str) -> None:
        """Annotate the cluster."""
        marks = {"metadata": {"annotations": {f"failback.dev/{name}": value}}}
        self.namespace.api.patch("BrokerCluster", "demo", marks)

    def requests(self, verbs: Iterable[str], resource: str, code: int) -> int:
        """Return how many requests the operator counted."""
        text = self.running.get("/metrics")
        return sum(
            int(float(number))
            for labels, number in re.findall(r"api_requests_total{(.*)} (\S+)", text)
            if f'code="{code}"' in labels
            and f'resource="{resource}"' in labels
            and any(f'verb="{verb}"' in labels for verb in verbs)
        )

    def readiness(self) -> str:
        """Return what ``/readyz`` says; empty when nobody answers."""
        try:
            return self.running.get("/readyz")
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError:
            return ""


Come = Callable[[], object]
"""Tells whether what was asked for has come."""


def counted(place: Place, right: Right) -> bool:
    """Tell whether the operator's metrics show that it was refused."""
    _, name, verb = right
    verbs = (verb, "apply") if verb in ("create", "patch") else (verb,)
    return place.requests(verbs, name, 403) > 0


def counted_and_apply_failed(place: Place, right: Right) -> bool:
    """The same, and the resource says why it is not ready."""
    found = condition_of(place.find("NameServer", "main"), "Ready")
    told = found.get("reason") == "ApplyFailed" and f" {right[1]}" in found["message"]
    return told and counted(place, right)


def not_listed(place: Place, right: Right) -> bool:
    return place.readiness() == f"not listed yet: {right[1]}"


def logged(place: Place, right: Right) -> bool:
    """Tell whether the log shows that a patch of the resource itself was refused."""
    return any(
        "PATCH" in line and f"/{right[1]}/" in line and "APIForbiddenError" in line
        for line in place.running.process.errors().splitlines()
    )


def nothing(place: Place) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What an operator is sent for."""

    ask: Callable[[Place], Come]
    """Ask for it, once the operator runs."""
    prepare: Callable[[Place], object] = nothing
    """What is there before the operator starts."""
    is_told: Callable[[Place, Right], bool] = counted
    again: Callable[[Place], object] = nothing
    """Ask once more when the right is back, where nobody repeats it."""
    pretended: bool = True
    proxied: bool = False
    starts: bool = True
    """The operator gets ready without the right."""
    variables: Mapping[str, str] = field(default_factory=dict)


# --- living through one -------------------------------------------------------------------------


def forfeit(control_plane: ControlPlane, right: Right, errand: Errand) -> None:
    """Send an operator without a right, then with it.

    Raises:
        AssertionError: The operator did not tell what it lacks, got what it was sent for all the
            same, or did not get it with the right.
    """
    settings = SETTINGS if right[0] in OPTIONAL else ()
    with ExitStack() as stack:
        namespace = Namespace(control_plane)
        stack.callback(namespace.clean_up)
        if errand.pretended:
            namespace.pretend_pods()
        proxy = MisbehavingProxy(control_plane) if errand.proxied else None
        if proxy is not None:
            proxy.start()
            stack.callback(proxy.stop)
        given = chart_rules(namespace, *settings)
        less = without(given, right)
        assert rights_of(given) - rights_of(less) == {right}
        server = proxy.url if proxy is not None else ""
        identity = namespace.identity("op", less, server=server)
        running = witnessed_operator(namespace, identity, _WAIT_SCALE, 0, **errand.variables)
        stack.callback(running.process.dispose)
        place = Place(namespace, running, proxy, stack)
        errand.prepare(place)
        running.start()
        try:
            _send(place, errand, right, given)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{running.process.errors()[-3000:]}") from error


def _send(place: Place, errand: Errand, right: Right, given: list[Object]) -> None:
    if errand.starts:
        place.running.wait_until_ready()
    has_come = errand.ask(place)
    wait_until(partial(errand.is_told, place, right), "the refusal to be told", _TOLD_SECONDS)
    assert not has_come(), "it came without the right"
    time.sleep(_STAY_SECONDS)
    assert not has_come(), "it came without the right, later"
    place.namespace.api.patch("Role", "op", {"rules": given})
    errand.again(place)
    wait_until(has_come, "what the right is for", _COME_SECONDS)
