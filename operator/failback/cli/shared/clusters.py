"""The options of commands that ask a cluster: its name servers, an access key, TLS."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from failback.cli.shared.commands import CONNECTION
from failback.cli.shared.options import open_root, option
from failback.cli.shared.settings_options import keyword, with_options
from failback.client.remoting.guarded.cluster import (
    HELP,
    Cluster,
    Given,
    config_file,
    find_cluster,
    given_cluster,
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

        A local cluster is asked with the access of the options alone: Failback runs it itself.

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
        return Cluster(addresses, given_cluster(self.given).access)

    def named(self) -> Cluster:
        """Return the cluster of options, environment or file, without name servers for none.

        Raises:
            ConfigError: One of them cannot be used.
        """
        return find_cluster(self.given)


NO_CLUSTER: Final = ClusterOptions()
"""The default of parameters; the typed options replace it."""


def cluster_options(
    *, root: bool = True, tls_prefix: str = "", short: bool = True
) -> Callable[[_Command], _Command]:
    """Give a command the options of its parameter ``cluster``, which is a `ClusterOptions`.

    Args:
        root: Whether there is ``--root``, and a local cluster is found without name servers.
        tls_prefix: Before ``tls`` in names, of a command that has such options of its own.
        short: Whether ``-n`` is taken.
    """

    def declare(command: _Command) -> _Command:
        def typed(values: Mapping[str, Any]) -> ClusterOptions:
            said = {name: values[_variable(name, tls_prefix)] for name in HELP}
            given = Given(**said, tls_prefix=tls_prefix)
            return ClusterOptions(given, values["root"] if root else None)

        return with_options(command, "cluster", _parameters(root, tls_prefix, short), typed)

    return declare


def _parameters(root: bool, tls_prefix: str, short: bool) -> list[inspect.Parameter]:
    found = [_parameter("namesrv", str, "", "", _OF_LOCAL if root else _OF_NONE, short)]
    if root:
        found.append(keyword("root", LocalRootOption, None))
    found.append(_parameter("access_key_file", Path | None, None))
    found.append(_parameter("tls", bool | None, None, tls_prefix))
    files = ("tls_ca", "tls_cert", "tls_key")
    found += [_parameter(name, Path | None, None, tls_prefix) for name in files]
    return [*found, _parameter("tls_server_name", str, "", tls_prefix)]


def _parameter(
    name: str, kind: Any, default: Any, prefix: str = "", end: str = "", short: bool = False
) -> inspect.Parameter:
    """One setting as an option; a switch has its opposite."""
    variable = _variable(name, prefix)
    option = f"--{variable.replace('_', '-')}"
    help_ = HELP[name]
    names = [option, *(["-n"] if short else [])]
    if not help_.value:
        names = [f"{option}/--no-{option[2:]}"]
    declared = typer.Option(
        *names, metavar=help_.value or None, rich_help_panel=CONNECTION, help=help_.text + end
    )
    return keyword(variable, Annotated[kind, declared], default)


def _variable(name: str, prefix: str) -> str:
    """The name of a setting's parameter."""
    return f"{prefix.replace('-', '_')}{name}" if name.startswith("tls") else name
