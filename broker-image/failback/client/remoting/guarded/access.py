"""The access to a guarded cluster: the file with the key that signs requests, and TLS.

The file is mqadmin's ``tools.yml``, or the properties of Apache's client.
"""

from __future__ import annotations

import logging
import os
import re
import time
from pathlib import Path
from typing import Final

from failback.client.remoting.guarded.signing import AccessKey, sign
from failback.client.remoting.guarded.tls import Tls
from failback.common.text import why
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ConfigError

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""So often the file is looked at again, as often as a broker looks at its accounts."""
_NAMES: Final = {"accesskey": "accessKey", "secretkey": "secretKey", "securitytoken": "token"}
_LINE: Final = re.compile(r"(['\"]?)([A-Za-z][\w.\-]*)\1\s*([:=])\s*(.*)")
_WANTED: Final = 'must have the lines "accessKey: NAME" and "secretKey: SECRET"'
_MOST_BYTES: Final = 1 << 16


def read_key_file(path: Path, option: str = "--access-key-file") -> AccessKey:
    """Return the key that a file holds. What the file says is never part of an error.

    Args:
        option: Where the file was named, for messages.

    Raises:
        ConfigError: The file cannot be read, or holds no key: names the line.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(option, f"{path} cannot be read: {why(error)}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, value = _pair(line, number, path)
        if name in _NAMES:
            found[_NAMES[name]] = value
    for name in ("accessKey", "secretKey"):
        if not found.get(name):
            raise ConfigError(name, f"is missing: the file {_WANTED}", file=path)
    return AccessKey(found["accessKey"], found["secretKey"], found.get("token", ""))


def _pair(line: str, number: int, path: Path) -> tuple[str, str]:
    """Return the name in small letters and the value of a line; empty for one without."""
    line = line.strip()
    if not line or line[0] in "#!" or line in ("---", "..."):
        return "", ""
    found = _LINE.fullmatch(line)
    if found is None or found[2] == "accounts":
        problem = "holds a broker's accounts" if found else "is no NAME: VALUE"
        error = ConfigError("access key", f"the line {problem}; the file {_WANTED}", file=path)
        error.line = number
        raise error
    value = found[4]
    if value[:1] in ("'", '"') and (end := value.find(value[0], 1)) > 0:
        value = value[1:end]
    elif found[3] == ":":
        value = re.split(r"(?:^|\s)#", value, maxsplit=1)[0].strip()
    return found[2].lower(), value


class KeyFile:
    """The key of a file, read again when the file has changed."""

    def __init__(self, path: Path, option: str = "--access-key-file") -> None:
        """Read the file.

        Raises:
            ConfigError: As :func:`read_key_file`.
        """
        self.path = path
        self._option = option
        self._seen = stamp_of(path)
        self._key = read_key_file(path, option)
        self._look_at = time.monotonic() + LOOK_SECONDS

    @property
    def key(self) -> AccessKey:
        """The newest key that could be read."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._look()
        return self._key

    def _look(self) -> None:
        stamp = stamp_of(self.path)
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._key = read_key_file(self.path, self._option)
        except ConfigError as error:
            logger.warning("the access key read before stays in use: %s", error)


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Return what tells that a file is another than before; ``None``: it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class ClusterAccess:
    """What connections to one cluster have in common. Its text shows no secret."""

    def __init__(self, key_file: KeyFile | None = None, tls: Tls | None = None) -> None:
        self.key_file = key_file
        self._tls = tls

    @property
    def tls(self) -> Tls | None:
        """Of a new connection; ``None``: it is plain."""
        return self._tls

    def sign(self, request: RemotingCommand) -> None:
        """Sign a request, if there is a key."""
        if self.key_file is not None:
            sign(request, self.key_file.key)

    def __bool__(self) -> bool:
        return self.key_file is not None or self.tls is not None

    def __repr__(self) -> str:
        signs = f"signs by {self.key_file.path}" if self.key_file else "does not sign"
        return f"<ClusterAccess {signs}, {'TLS' if self.tls else 'plain'}>"
