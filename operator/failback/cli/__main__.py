"""Entry point of ``failback``.

The commands of ``light_commands`` are started before typer is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from failback.cli.light_commands import light_command


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    light = light_command(words)
    if light is not None:
        command, rest = light
        return command(rest)
    from failback.cli.app import run_command_line

    return run_command_line(words)


if __name__ == "__main__":
    sys.exit(main())
