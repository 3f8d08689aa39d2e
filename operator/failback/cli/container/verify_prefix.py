"""``failback tools verify-prefix``: refuse to start a slave whose log is not its master's.

An init container of every pod of a broker. Masters and empty logs pass at once, before anything
of the network is imported. With ``--only-read`` no broker starts: which copy of a pair is to be
served is not known yet. Exit codes: 0 the broker may start, 2 bad input, 3 it must not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from failback.cli.shared.termination import write_termination
from failback.client.program import CommandParser

_MAY_START: Final = 0
_USER_ERROR: Final = 2
_MUST_NOT_START: Final = 3


def main(argv: Sequence[str]) -> int:
    """Run; print the verdict as one line of JSON and leave it as termination message."""
    parser = CommandParser(
        "failback tools verify-prefix",
        "Check that a slave's log is the beginning of its master's.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--conf", type=Path, metavar="FILE", help="The slave's broker.conf.")
    source.add_argument(
        "--only-read",
        type=Path,
        metavar="FOLDER",
        help="Only say where this commit log ends, and start no broker.",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="Wait so long for the master.",
    )
    parser.add_argument(
        "--records", type=int, default=64, metavar="N", help="Compare the last so many."
    )
    options = parser.parse_args(argv)
    try:
        if options.only_read is not None:
            verdict, code = _read(options.only_read), _MUST_NOT_START
        else:
            verdict, code = _check(options.conf, options.seconds, options.records)
    except (OSError, ValueError) as error:
        print(f"verify-prefix: {options.only_read or options.conf}: {error}", file=sys.stderr)
        return _USER_ERROR
    print(json.dumps(verdict), flush=True)
    write_termination(verdict)
    return code


def _read(commit_log: Path) -> dict[str, Any]:
    """Return where a log ends, and when its last message was stored.

    Raises:
        ValueError: It has data and no record: it is damaged, not empty.
    """
    from failback.broker.store.log.record import Record, read_record
    from failback.broker.store.log.tail import log_files, read_tail

    tail = read_tail(commit_log, 64)
    for _, path in () if tail.end else log_files(commit_log):
        with path.open("rb") as file:
            if any(file.read(8)):
                raise ValueError(f"{path.name} has data, and no record is readable")
    found: dict[str, Any] = {"prefix": "Gated", "ownEnd": tail.end}
    for offset, data in tail.records[-1:]:
        record = read_record(memoryview(data), 0, offset, check_crc=False)
        if isinstance(record, Record):
            found["storedMs"] = record.store_timestamp
    return found


def _properties(conf: Path) -> dict[str, str]:
    from failback.protocol.errors import ConfigError
    from failback.protocol.properties import properties_of

    try:
        return properties_of(conf.read_bytes(), conf).values
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _check(conf: Path, seconds: float, records: int) -> tuple[dict[str, Any], int]:
    properties = _properties(conf)
    if properties.get("brokerRole", "").endswith("_MASTER"):
        return {"prefix": "Master"}, _MAY_START
    if not _has_log(properties):
        return {"prefix": "Empty"}, _MAY_START
    import asyncio

    from failback.broker.ha.prefix import PrefixSettings, verify_prefix
    from failback.protocol.errors import ConfigError

    try:
        settings = PrefixSettings.of(properties, conf)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    verdict = asyncio.run(verify_prefix(settings, seconds=seconds, records=records))
    return verdict.to_json(), _MAY_START if verdict.prefix.may_start else _MUST_NOT_START


def _has_log(properties: Mapping[str, str]) -> bool:
    root = properties.get("storePathRootDir", "")
    log = Path(properties.get("storePathCommitLog") or f"{root}/commitlog")
    return log.is_dir() and any(path.name.isdecimal() for path in log.iterdir())
