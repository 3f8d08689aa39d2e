"""The files with the accounts: plain_acl.yml and those of the folder acl, read when they change.

They are compared by their content: a mounted Secret changes by a link. A file that cannot be used
leaves the rules as they were.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ruamel.yaml.error import YAMLError

from failback.client.remoting.access.accounts import (
    DATA_VERSION,
    Account,
    FileRules,
    rules_of,
    version_of,
)
from failback.client.remoting.access.white_addresses import Matcher, every_address
from failback.common.bounded_yaml import load_all, read_text, written
from failback.common.replacing import rewrite_file
from failback.common.text import why
from failback.protocol.errors import ConfigError
from failback.protocol.route import DataVersion

logger = logging.getLogger(__name__)

LOOK_MS: Final = 5_000
FILE: Final = "plain_acl.yml"
FOLDER: Final = "acl"
MOST_FILES: Final = 256
_JAVAS_YAML: Final = (1, 1)


@dataclass(frozen=True, slots=True)
class Rules:
    """What all files say together."""

    accounts: dict[str, Account] = field(default_factory=dict)
    file_of: dict[str, Path] = field(default_factory=dict)
    """The file of each access key."""
    white_addresses: tuple[Matcher, ...] = ()
    versions: dict[Path, DataVersion] = field(default_factory=dict)


class RulesFiles:
    """The rules of a folder.

    Args:
        folder: Holds ``plain_acl.yml``, and a folder ``acl`` of more such files, or either.
    """

    def __init__(self, folder: Path, now_ms: Callable[[], int] = lambda: 0) -> None:
        """Read the files.

        Raises:
            ConfigError: There is none, or one cannot be used: names the file.
        """
        self.path = folder / FILE
        self._more = folder / FOLDER
        self._now_ms = now_ms
        self._seen = b""
        self.problem = ""
        """Why the newest files are not in use; empty: they are."""
        self.on_change: Callable[[], None] = lambda: None
        self.rules = self._read()

    def look(self) -> None:
        """Take over what has changed; a problem is logged once."""
        try:
            changed = self._stamp() != self._seen
            if changed:
                self.rules = self._read()
                self.on_change()
            if changed or self.problem:
                logger.info("access: %d accounts are in use", len(self.rules.accounts))
            self.problem = ""
        except ConfigError as error:
            if str(error) != self.problem:
                logger.error("access: the rules read before stay in use: %s", error)
            self.problem = str(error)

    def change(self, path: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change one file, count its version on, and take it over.

        Raises:
            ValueError: Of ``edit``.
            ConfigError: The file cannot be read.
            OSError: It cannot be written, as that of a mounted Secret.
        """
        if not os.access(path, os.W_OK):
            raise PermissionError(f"{path} is read-only: change it where it is made")
        document = edit(dict(_document(path) or {}))
        version = version_of(document).next(self._now_ms())
        document[DATA_VERSION] = [{"counter": version.counter, "timestamp": version.timestamp}]
        rewrite_file(path, written(document, version=_JAVAS_YAML).encode())
        self.look()

    def documents(self) -> Iterator[tuple[Path, Any]]:
        """Yield each file and what it holds.

        Raises:
            ConfigError: One cannot be read.
        """
        for path in self._paths():
            yield path, _document(path)

    def _read(self) -> Rules:
        stamp = self._stamp()
        rules = Rules()
        white: list[Matcher] = []
        for path, document in self.documents():
            found = _checked(path, document)
            for key, account in found.accounts.items():
                if key in rules.accounts:
                    logger.warning(
                        "access: %s: accessKey %s is in %s, too", path, key, rules.file_of[key]
                    )
                    continue
                rules.accounts[key], rules.file_of[key] = account, path
            if every_address in (
                *found.white_addresses,
                *(account.is_white for account in found.accounts.values()),
            ):
                logger.warning("access: %s: the white address * takes every request", path)
            white += found.white_addresses
            rules.versions[path] = found.version
        self._seen = stamp
        return Rules(rules.accounts, rules.file_of, tuple(white), rules.versions)

    def _paths(self) -> list[Path]:
        more = sorted(each for each in self._more.rglob("*") if each.suffix in (".yml", ".yaml"))
        # A mounted Secret holds each file twice: by a link, and in a folder whose name begins so.
        more = [each for each in more if not any(part.startswith("..") for part in each.parts)]
        found = more + ([self.path] if self.path.exists() else [])
        if not found:
            problem = f"there is neither {self.path} nor a file in {self._more}: no request could"
            raise ConfigError("aclEnable", f"{problem} be allowed")
        if len(found) > MOST_FILES:
            raise ConfigError("aclEnable", f"{self._more} holds more than {MOST_FILES} files")
        return found

    def _stamp(self) -> bytes:
        digest = hashlib.sha256()
        for path in self._paths():
            digest.update(f"{path}\0{_text(path)}\0".encode())
        return digest.digest()


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        problem = why(error) if isinstance(error, OSError) else str(error)
        raise ConfigError("access", f"cannot be read: {problem}", file=path) from None


def _document(path: Path) -> Any:
    try:
        found = load_all(_text(path).removeprefix("\ufeff"), version=_JAVAS_YAML)
    except (YAMLError, ValueError) as error:
        # The message of a YAML error quotes the line, which may be a secret.
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1} is no YAML" if mark else "is no YAML"
        problem = place if isinstance(error, YAMLError) else str(error)
        raise ConfigError("access", problem, file=path) from None
    if len(found) > 1:
        raise ConfigError("access", "holds more than one document", file=path)
    return found[0] if found else None


def _checked(path: Path, document: Any) -> FileRules:
    try:
        return rules_of(document)
    except ValueError as error:
        raise ConfigError("access", str(error), file=path) from None
