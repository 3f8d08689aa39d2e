"""Run one command line of an app: what is wrong with it becomes a line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from failback.cli.shared.commands import UsageError, help_command, is_bare_group, usage_problem
from failback.cli.shared.errors import INCONCLUSIVE, PASS, USER_ERROR, fail
from failback.common.reasons import where_and_why


def run_app(app: typer.Typer, name: str, argv: Sequence[str]) -> int:
    """Run one command line; return its exit code.

    Args:
        name: What people type for the app.
    """
    try:
        code = app(args=list(argv), prog_name=name, standalone_mode=False)
    except UsageError as error:
        if is_bare_group(error):
            print(error)
            return PASS
        fail(usage_problem(error))
        print(f"see: {help_command(error)}", file=sys.stderr)
        return USER_ERROR
    except OSError as error:  # help and version go to a disk that is full
        fail(where_and_why(error))
        return INCONCLUSIVE
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # of a help that `head` cut off
            return PASS
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return code if isinstance(code, int) else PASS
