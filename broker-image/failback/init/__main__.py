"""Entry point of ``failback-init``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from failback.init import arguments
from failback.init.records import RunDirectory

USAGE_ERROR = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; return its exit code."""
    try:
        request = arguments.parse(sys.argv[1:] if argv is None else argv)
    except arguments.UsageError as error:
        print(f"failback-init: {error}", file=sys.stderr)
        return USAGE_ERROR
    directory = RunDirectory.of_environment()
    match request:
        case arguments.Run(command):
            import faulthandler

            from failback.init.supervisor import run

            if not faulthandler.is_enabled() and sys.__stderr__ is not None:
                faulthandler.enable(sys.__stderr__)
            return run(command, directory)
        case arguments.Show(what):
            return _show(what)
    from failback.init import commands

    match request:
        case arguments.Kill():
            return commands.kill(request, directory)
        case arguments.Hold(by, until):
            return commands.hold(by, directory, until)
        case arguments.Renew(seconds):
            return commands.renew(seconds, directory)
        case arguments.Release():
            return commands.release(directory)
        case arguments.Status(as_json):
            return commands.status(as_json, directory)


def _show(what: str) -> int:
    if what == "help":
        print(arguments.USAGE, end="")
        return 0
    from importlib.metadata import version

    print(f"failback-init {version('failback')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
