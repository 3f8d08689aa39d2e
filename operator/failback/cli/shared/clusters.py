"""The options of commands that ask a cluster: its name servers, an access key, TLS."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

from failback.cli.shared.commands import CONNECTION
from failback.cli.shared.options import open_root, option
from failback.cli.shared.settings_options import keyword, with_options
from failback.client.remoting.guarded.cluster import (
    HELP,
    Cluster,
    Given,
    access_by,
    config_file,
    find_cluster,
)
from failback.protocol.errors import ConfigError

_Command = TypeVar("_Command", bound=Callable[..., Any])
LocalRootOption = Annotated[
    Path | None,
    option(
        "--root",
        "FOLDER",
        "Folder of the local cluster (default: failback up's).",
        rich_help_panel=CONNECTION,
    ),
]
_OF_LOCAL: Final = ", else the local cluster's)."
_OF_NONE: Final = ")."


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What was typed."""

    given: Given = field(default_factory=Given)
    root: Path | None = None
    """Folder of a local cluster."""

    def found(self) -> Cluster:
        """Return the cluster to ask: the one that is named, else the local one.

        A local cluster is asked with the access of the options and its own Secrets.

        Raises:
            ConfigError: No cluster is known, or an option cannot be used.
        """
        named = self.named() if self.root is None or self.given.namesrv else Cluster()
        if named.name_servers:
            return named
        from failback.operator.local.control import RuntimeAway, call

        try:
            view = call(open_root(self.root), "view")
        except RuntimeAway as error:
            problem = f"is not given, FAILBACK_NAMESRV is not set, {config_file()} names none, "
            raise ConfigError("--namesrv", f"{problem}and {error}") from error
        addresses = tuple(pod["address"] for pod in view["nameserver_pods"])
        said: dict[str, str] = next(
            (each["access"] for each in view["clusters"] if each["access"]), {}
        )
        return Cluster(addresses, access_by(said, self.given))

    def named(self) -> Cluster:
        """Return the cluster of options, environment or file, without name servers for none.

        Raises:
            ConfigError: One of them cannot be used.
        """
        return find_cluster(self.given)


NO_CLUSTER: Final = ClusterOptions()
"""The default of parameters; the typed options replace it."""


def cluster_options(*, root: bool = True, tls_prefix: str = "") -> Callable[[_Command], _Command]:
    """Give a command the options of its parameter ``cluster``, which is a `ClusterOptions`.

    Args:
        root: Whether there is ``--root``, and a local cluster is found without name servers.
        tls_prefix: Before ``tls`` in names, of a command that has such options of its own.
    """

    def declare(command: _Command) -> _Command:
        def typed(values: Mapping[str, Any]) -> ClusterOptions:
            said = {name: values[_variable(name, tls_prefix)] for name in HELP}
            given = Given(**said, tls_prefix=tls_prefix)
            return ClusterOptions(given, values["root"] if root else None)

        return with_options(command, "cluster", list(_parameters(root, tls_prefix)), typed)

    return declare


def _parameters(root: bool, prefix: str) -> Iterator[inspect.Parameter]:
    """Yield each setting as an option; a switch has its opposite."""
    kinds, defaults = get_type_hints(Given), Given()
    for name, help_ in HELP.items():
        variable, end = _variable(name, prefix), ""
        names = f"--{variable.replace('_', '-')}"
        if name == "namesrv":
            names, end = f"{names}, -n", _OF_LOCAL if root else _OF_NONE
        elif not help_.value:
            names = f"{names}/--no-{names[2:]}"
        how = option(names, help_.value, help_.text + end, rich_help_panel=CONNECTION)
        yield keyword(variable, Annotated[kinds[name], how], getattr(defaults, name))
        if root and name == "namesrv":
            yield keyword("root", LocalRootOption, None)


def _variable(name: str, prefix: str) -> str:
    """The name of a setting's parameter."""
    return f"{prefix.replace('-', '_')}{name}" if name.startswith("tls") else name
