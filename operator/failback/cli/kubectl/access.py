"""The API server as kubectl's own options name it, and our resources there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from failback.cli.shared import commands
from failback.cli.shared.asking import NotThere
from failback.cli.shared.commands import Declared
from failback.cli.shared.options import argument, option
from failback.cli.shared.settings_options import keyword, with_options
from failback.common.text import did_you_mean
from failback.kube.resources import SHORT_NAMES
from failback.protocol.errors import ConfigError

if TYPE_CHECKING:
    from failback.kube.blocking import BlockingKube

Object = dict[str, Any]
ClusterArgument = Annotated[str, argument("CLUSTER", "Name of the BrokerCluster.")]
_NAMES: Final = {
    **{kind.lower(): kind for kind in SHORT_NAMES},
    **{short: kind for kind, short in SHORT_NAMES.items()},
}
"""What people type for a kind, as for kubectl."""


@dataclass(frozen=True, slots=True)
class Access:
    """One namespace of one API server, as one account sees it."""

    kube: BlockingKube
    namespace: str

    def need(self, kind: str, name: str) -> Object:
        """Return an object.

        Raises:
            NotThere: There is none; names what is near.
        """
        found = self.kube.get(kind, self.namespace, name)
        if found is not None:
            return found
        names = [str(each["metadata"]["name"]) for each in self.list_all(kind)]
        near = did_you_mean(name, names) or (f"; there is: {', '.join(names)}" if names else "")
        raise NotThere(f'no {kind} "{name}" in namespace {self.namespace}{near}')

    def list_all(self, kind: str) -> list[Object]:
        """Return all objects of a kind."""
        return self.kube.list_all(kind, self.namespace)


@dataclass(frozen=True, slots=True)
class Where:
    """What kubectl's own options say, as they were typed."""

    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""

    @contextmanager
    def access(self) -> Iterator[Access]:
        """Open the API server.

        Raises:
            ApiError: No kubeconfig names one, or the context is not in it.
        """
        from failback.kube.blocking import BlockingKube
        from failback.kube.configuration import namespace_of

        file, chosen = self.kubeconfig or None, self.context or None
        namespace = self.namespace or namespace_of(file, chosen)
        kube = BlockingKube.connect(file, context=chosen, retries=False)
        try:
            yield Access(kube, namespace)
        finally:
            kube.close()


HERE: Final = Where()
"""The default of parameters; the typed options replace it."""
_OPTIONS: Final = {
    "namespace": option("--namespace, -n", "NAMESPACE", "Namespace (default: the context's)."),
    "context": option("--context", "NAME", "Context of the kubeconfig (default: its current one)."),
    "kubeconfig": option(
        "--kubeconfig", "FILE", "Kubeconfig (default: $KUBECONFIG, else ~/.kube/config)."
    ),
}


def command(name: str, *examples: str) -> Callable[[Callable[..., Any]], Declared]:
    """Make a function a command that has kubectl's own options as its parameter ``where``."""
    typed = [keyword(each, Annotated[str, how], "") for each, how in _OPTIONS.items()]

    def declare(function: Callable[..., Any]) -> Declared:
        located = with_options(function, "where", typed, lambda values: Where(**values))
        return commands.command(name, *examples)(located)

    return declare


def kind_of(word: str) -> str:
    """Return the kind that a word means: its name, plural, short name, with a group or not.

    Raises:
        ConfigError: It is no kind of Failback.
    """
    plain = word.lower().partition(".")[0]
    singular = f"{plain.removesuffix('es')}" if plain.endswith("switches") else plain
    for each in (plain, singular, plain.removesuffix("s")):
        if each in _NAMES:
            return _NAMES[each]
    near = did_you_mean(plain, _NAMES)
    raise ConfigError("NAME", f'"{word}" is none of our kinds{near}')


def pair_at(cluster: Mapping[str, Any], word: str) -> Mapping[str, Any]:
    """Return the pair in a cluster's status that an index or a broker name means.

    Raises:
        ConfigError: There is none; names those that are there.
    """
    pairs = (cluster.get("status") or {}).get("pairs") or []
    for pair in pairs:
        if word in (str(pair["index"]), pair["name"]):
            return dict(pair)
    known = ", ".join(f"{pair['index']} ({pair['name']})" for pair in pairs) or "none yet"
    raise ConfigError("PAIR", f'no pair "{word}"; the cluster has: {known}')


def member_at(cluster: Mapping[str, Any], pair: Mapping[str, Any], word: str) -> int:
    """Return the ordinal that a number, a member's, a StatefulSet's or a pod's name means.

    Raises:
        ConfigError: There is none; names those that are there.
    """
    known = {}
    for member in pair.get("members") or []:
        ordinal = int(member["ordinal"])
        known[ordinal] = member_name(pair, ordinal)
        if word in (str(ordinal), *names_of(cluster, pair, ordinal)):
            return ordinal
    if not known and word.isdecimal():  # a status leaves the members of large clusters out
        return int(word)
    names = ", ".join(f"{number} ({name})" for number, name in known.items())
    raise ConfigError("MEMBER", f'no member "{word}"; the pair has: {names}')


def member_name(pair: Mapping[str, Any], ordinal: int) -> str:
    """Return the name of a member as conditions and annotations have it: ``orders-0-1``."""
    return f"{pair['name']}-{ordinal}"


def names_of(cluster: Mapping[str, Any], pair: Mapping[str, Any], ordinal: int) -> tuple[str, ...]:
    """Return all that a member is called by: its name, its StatefulSet's and its pod's.

    The two differ where spec.brokerNamePrefix is set.
    """
    stateful_set = f"{cluster['metadata']['name']}-{pair['index']}-{ordinal}"
    return member_name(pair, ordinal), stateful_set, f"{stateful_set}-0"
