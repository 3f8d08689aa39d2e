"""``failback tools install-conf``: put a configuration file where the broker may rewrite it.

The init container of every pod. ``${NAME}`` of the variables below is replaced by the pod's
own; then the file is written, synced and renamed, so that a broker never starts from half of
one. Standard library only: it runs before anything else of a pod.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from failback.client.program import CommandParser
from failback.common.replacing import replace_file

VARIABLES: Final = ("POD_IP", "POD_NAME", "POD_NAMESPACE", "HOME")
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_USER_ERROR: Final = 2


class UnknownVariable(ValueError):
    """The file refers to something that a pod does not know."""


def fill_in(text: str, environment: Mapping[str, str]) -> str:
    """Return ``text`` with the pod's variables put in.

    Raises:
        UnknownVariable: A reference has no value. Nothing may be started from such a file.
    """

    def value(reference: re.Match[str]) -> str:
        name = reference[1]
        if name not in VARIABLES or name not in environment:
            raise UnknownVariable(f"{reference[0]} has no value in this pod")
        return environment[name]

    return _REFERENCE.sub(value, text)


def install(source: Path, target: Path, environment: Mapping[str, str]) -> None:
    """Fill in ``source`` and put it at ``target``, durably and in one step."""
    text = fill_in(source.read_text(encoding="utf-8"), environment)
    replace_file(target, text.encode())


def main(argv: Sequence[str]) -> int:
    """Run; return 0, or 2 when the file can't be installed."""
    parser = CommandParser(
        "failback tools install-conf",
        "Copy a configuration file, putting in the pod's address and home.",
    )
    parser.add_argument(
        "--from", dest="source", type=Path, required=True, metavar="FILE", help="As mounted."
    )
    parser.add_argument(
        "--to",
        dest="target",
        type=Path,
        required=True,
        metavar="FILE",
        help="Where the broker may rewrite it.",
    )
    options = parser.parse_args(argv)
    try:
        install(options.source, options.target, os.environ)
    except (OSError, UnicodeDecodeError, UnknownVariable) as error:
        print(f"install-conf: {options.source}: {error}", file=sys.stderr)
        return _USER_ERROR
    return 0
