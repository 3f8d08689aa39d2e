"""Entry point of ``failback``.

The commands of ``light_commands`` are started before typer is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from failback.cli.light_commands import light_command
from failback.cli.shared.closed_terminal import end_with_terminal

_INTERRUPTED = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; return its exit code."""
    if argv is None:
        end_with_terminal()
    words = list(sys.argv[1:] if argv is None else argv)
    light = light_command(words)
    if light is not None:
        command, rest = light
        return _guarded(command, rest)
    from failback.cli.app import run_command_line

    return run_command_line(words)


def _guarded(command: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    """Run a light command; what it did not expect becomes one line."""
    try:
        code = command(words)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output left, as `head` does
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - kept to the end
        return 0
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except Exception as error:
        # The boundary of the program: everything becomes one line here.
        from failback.cli.shared.errors import Debug, explain, fail

        if Debug.on:
            raise
        line, code = explain(error)
        fail(line)
    return code


if __name__ == "__main__":
    sys.exit(main())
