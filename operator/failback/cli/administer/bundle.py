"""``failback doctor --bundle``: an archive for a question to others, without secrets."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from failback.cli.administer.redaction import cleaned
from failback.cli.shared.folders import check_folder
from failback.common.text import why
from failback.protocol.errors import ConfigError

MOST_BYTES: Final = 1 << 20
"""Of one file: the end of a longer one."""
_OF_CLUSTER: Final = (
    *("resources.json", "status.json", "state.json", "ports.json", "deaths.jsonl"),
    *("runtime.log", "logs/*.log", "pods/*/home/**/*.conf"),
)
_OF_RUN: Final = (
    *("run.json", "closed.json", "outcome.json", "refused.json", "experiment.yaml"),
    *("experiment.json", "evidence.jsonl", "undo.jsonl", "target.json", "logs/*.log"),
    *("report/report.json", "report/summary.md"),
)
_VARIABLES: Final = ("FAILBACK_", "NAMESRV_ADDR", "JAVA_", "SPARK_", "AWS_", "XDG_", "KUBE", "LANG")


def write_bundle(
    target: Path, checks: Sequence[Mapping[str, Any]], cluster: Path, run: Path | None
) -> list[str]:
    """Write the archive; return the names of what is in it.

    Raises:
        ConfigError: It can't be written, or there is no such run.
    """
    check_folder("--bundle", target.parent)
    if target.is_dir():
        raise ConfigError("--bundle", f"{target} is a folder; name a file such as {target}.tar.gz")
    texts = {
        "checks.json": json.dumps(list(checks)),
        "versions.txt": "".join(_versions()),
        "environment.txt": "".join(_environment(os.environ)),
    }
    texts |= dict(_texts("cluster", cluster, _OF_CLUSTER))
    if run is not None:
        texts |= dict(_texts("run", run, _OF_RUN))
    found = cleaned(texts, os.environ)
    try:
        with tarfile.open(target, "w:gz") as archive:
            for name, text in sorted(found.items()):
                _add(archive, name, text.encode())
    except OSError as error:
        raise ConfigError("--bundle", f"cannot write to {target}: {why(error)}") from error
    return sorted(found)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(f"failback-bundle/{name}")
    entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
    archive.addfile(entry, io.BytesIO(content))


def _texts(place: str, folder: Path, patterns: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            if path.is_file():
                yield f"{place}/{path.relative_to(folder).as_posix()}", _end_of(path)


def _end_of(path: Path) -> str:
    """Return the file's end, from the beginning of a line on."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MOST_BYTES))
            content = file.read(MOST_BYTES)
    except OSError as error:
        return f"not read: {why(error)}\n"
    if size > MOST_BYTES:
        content = content.partition(b"\n")[2]
    return content.decode(errors="replace")


def _versions() -> Iterator[str]:
    names = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    for name in sorted(filter(None, names), key=str.lower):
        yield f"{name}=={names[name]}\n"


def _environment(environment: Mapping[str, str]) -> Iterator[str]:
    """What steers the program; that a variable is set is said, of others not even the name."""
    for name, value in sorted(environment.items()):
        if name.startswith(_VARIABLES):
            yield f"{name}={value}\n"
