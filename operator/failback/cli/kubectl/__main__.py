"""Entry point of ``kubectl-failback``, which kubectl starts for ``kubectl failback``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from failback.cli.kubectl import exposure, hold, offsets, report, status, switch, why
from failback.cli.shared.commands import Group, add, as_epilog, run_app
from failback.cli.shared.errors import Debug
from failback.cli.shared.options import flag

NAME: Final = "kubectl failback"
app = typer.Typer(
    name=NAME,
    cls=Group,
    help="Look after Failback's resources on Kubernetes: what is, why, and what to do.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=as_epilog(
        (
            f"{NAME} status orders            pairs, members, operations, conditions",
            f"{NAME} why orders               why it is not Ready, and what to do",
            f"{NAME} switch orders 0 1        member 1 of pair 0 becomes master",
            f"{NAME} exposure orders          what a kill now would repeat",
        )
    ),
)


@app.callback()
def root(debug: Annotated[bool, flag("--debug", "Show tracebacks.")] = False) -> None:
    """Look after Failback's resources on Kubernetes."""
    Debug.on = debug


add(
    app,
    *(status.status, why.why, switch.switch, hold.hold, exposure.exposure, report.report),
)
app.add_typer(offsets.app, name="offsets")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; return its exit code."""
    return run_app(app, NAME, list(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    sys.exit(main())
