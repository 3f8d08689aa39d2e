"""Run one command line of an app: what is wrong with it becomes a line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer

from failback.cli.shared.commands import UsageError
from failback.cli.shared.errors import INCONCLUSIVE, PASS, USER_ERROR, fail
from failback.common.text import where_and_why


def run_app(app: typer.Typer, name: str, argv: Sequence[str]) -> int:
    """Run one command line; return its exit code.

    Args:
        name: What people type for the app.
    """
    try:
        code = app(args=list(argv), prog_name=name, standalone_mode=False)
    except UsageError as error:
        problem: Any = error
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command
            print(
                problem.format_message(), end=""
            )  # help as plain text; panels are printed already
            return PASS
        fail(problem.format_message())
        path = problem.ctx.command_path if problem.ctx is not None else name
        print(f"see: {path} --help", file=sys.stderr)
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
