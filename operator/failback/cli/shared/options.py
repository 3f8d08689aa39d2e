"""Options that several commands have, and the rules for the names that are typed into them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from failback.protocol.names import NameRefused, check_group, check_topic

if TYPE_CHECKING:
    from failback.operator.local.root import Root


def check_group_of_client(value: str) -> str:
    """Refuse the group of ``GROUP`` or ``GROUP@CLIENT_ID`` if no group may have that name."""
    _refusing(check_group)(value.partition("@")[0])
    return value


def _refusing(check: Callable[[str], None]) -> Callable[[Any], Any]:
    """Return what refuses names that ``check`` does; its value is one, a list or ``None``."""

    def checked(value: Any) -> Any:
        names = value if isinstance(value, (list, tuple)) else () if value is None else (value,)
        for each in names:
            try:
                check(each)
            except NameRefused as error:
                raise typer.BadParameter(str(error)) from None
        return value

    return checked


_CHECKS: Final = {"GROUP": _refusing(check_group), "TOPIC": _refusing(check_topic)}


def option(names: str, value: str, text: str, **further: Any) -> Any:
    """Return how an option is typed, and what the help says of it.

    Args:
        names: Such as ``--group, -g``.
        value: What the help shows for its value: FILE. Empty for a choice of words. A GROUP and a
            TOPIC must be a name that one may have.
        further: What else ``typer.Option`` takes.
    """
    further.setdefault("callback", _CHECKS.get(value))
    return typer.Option(*names.split(", "), metavar=value or None, help=text, **further)


def flag(names: str, text: str, **further: Any) -> Any:
    """Return how an option without a value is typed, and what the help says of it."""
    return option(names, "", text, **further)


def argument(value: str, text: str, **further: Any) -> Any:
    """Return what the help calls an argument, and says of it; likewise."""
    further.setdefault("callback", _CHECKS.get(value))
    return typer.Argument(metavar=value, help=text, **further)


JsonOption = Annotated[bool, flag("--json", "Print JSON, for machines.")]
TraceTopicOption = Annotated[
    list[str] | None,
    option(
        "--trace-topic",
        "TOPIC",
        "Where the clients' trace is (default: RMQ_SYS_TRACE_TOPIC and those of regions).",
    ),
]
RootOption = Annotated[
    Path | None,
    option(
        "--root", "FOLDER", "Folder of the local cluster (default: $XDG_STATE_HOME/failback/local)."
    ),
]
RunsOption = Annotated[Path, option("--runs", "FOLDER", "Folder that holds the run folders.")]
KubeconfigOption = Annotated[
    str,
    option(
        "--kubeconfig",
        "FILE",
        "How to reach Kubernetes (default: $KUBECONFIG, else ~/.kube/config).",
    ),
]
RUNS: Final = Path("runs")


def open_root(path: Path | None) -> Root:
    """Return the folder of the local cluster: the one named, else the default."""
    from failback.operator.local.root import Root, default_root

    return Root(path if path is not None else default_root())


class Engine(StrEnum):
    """What counts the rows of a report."""

    auto = "auto"
    local = "local"
    spark = "spark"


ENGINE_HELP: Final = "What counts: local, in this process; spark; auto, by the number of rows."
