"""Which cluster a command asks, and how: of its options, the environment or a file, in this order.

The file is TOML; its keys are the names of the options with ``_`` for ``-``. Every command that
asks a cluster reads its settings here.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from failback.client.program import CommandParser
from failback.client.remoting.addresses import addresses_of
from failback.client.remoting.guarded.access import ClusterAccess, KeyFile
from failback.client.remoting.guarded.tls import Tls, TlsFiles
from failback.common.text import did_you_mean, why
from failback.protocol.errors import ConfigError

CONFIG_VARIABLE: Final = "FAILBACK_CONFIG"
"""Names another file than the user's."""
_OTHER_VARIABLES: Final = {"namesrv": ("NAMESRV_ADDR",)}
"""Read after Failback's own: mqadmin's."""
_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")


class Help(NamedTuple):
    """How an option reads in ``--help``."""

    value: str
    text: str


HELP: Final[Mapping[str, Help]] = {
    "namesrv": Help(
        "ADDRESSES", "Name servers, HOST:PORT;HOST:PORT (default: $FAILBACK_NAMESRV, config.toml"
    ),
    "access_key_file": Help("FILE", "File with accessKey: and secretKey:, to sign requests with."),
    "tls": Help("", "Speak TLS; any of the options below switches it on, too."),
    "tls_ca": Help("FILE", "Certificates to trust, PEM (default: the system's)."),
    "tls_cert": Help("FILE", "Certificate to show to brokers that ask for one, PEM."),
    "tls_key": Help("FILE", "Private key of that certificate, PEM (default: in the same file)."),
    "tls_server_name": Help(
        "NAME", "Name that certificates must have, * for any (default: the host of the address)."
    ),
}
"""By the name of the setting. Of ``namesrv`` each command adds what it does without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The options of a command; an option that is not given may be set elsewhere."""

    namesrv: str = ""
    access_key_file: Path | None = None
    tls: bool | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_server_name: str = ""
    tls_prefix: str = ""
    """Before ``tls`` in the names of the options, for messages."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster to ask. Without name servers its brokers are asked by their addresses."""

    name_servers: tuple[str, ...] = ()
    access: ClusterAccess | None = None
    """``None``: it is not guarded."""


def add_cluster_options(command: CommandParser, *, end: str) -> None:
    """Add the options that say which cluster a light command asks, and how.

    Args:
        end: End of the help of ``--namesrv``: where name servers are found without it.
    """
    for name, (value, text) in HELP.items():
        option = f"--{name.replace('_', '-')}"
        if name == "namesrv":
            command.add_argument(
                "-n", option, action="append", default=[], metavar=value, help=f"{text}{end}"
            )
        elif value == "FILE":
            command.add_argument(option, type=Path, metavar=value, help=text)
        elif value:
            command.add_argument(option, default="", metavar=value, help=text)
        else:
            switch = argparse.BooleanOptionalAction
            command.add_argument(option, action=switch, default=None, help=text)
    command.folded = command.parameters()[-len(HELP) :]


def given_of(options: argparse.Namespace) -> Given:
    """Return what was given to the options of :func:`add_cluster_options`."""
    values = {name: getattr(options, name) for name in HELP}
    return Given(**{**values, "namesrv": ";".join(options.namesrv)})


def options_of(given: Given) -> list[str]:
    """Return what was given as options again, for another command; keys stay in their files."""
    words: list[str] = []
    for name in HELP:
        value, option = getattr(given, name), name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif value:
            words += [f"--{option}", str(value)]
    return words


def config_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return the user's file; it need not be there."""
    environ = os.environ if environ is None else environ
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named).expanduser()
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "failback" / "config.toml"


def find_cluster(given: Given, environ: Mapping[str, str] | None = None) -> Cluster:
    """Return the cluster that options, environment and file name; without name servers for none.

    Raises:
        ConfigError: Something of it cannot be used: names the option, variable or file.
    """
    environ = os.environ if environ is None else environ
    settings = _Settings(given, environ, config_file(environ))
    return Cluster(settings.addresses(), settings.access())


def given_cluster(given: Given) -> Cluster:
    """Return the cluster that options alone name.

    Raises:
        ConfigError: As :func:`find_cluster`.
    """
    settings = _Settings(given, {}, None)
    return Cluster(settings.addresses(), settings.access())


def access_by(files: Mapping[str, str], given: Given | None = None) -> ClusterAccess | None:
    """Return the access that files mean, by the names of their options.

    Args:
        files: Such as ``access_key_file``, ``tls_ca``.
        given: Options that count before them.

    Raises:
        ConfigError: As :func:`find_cluster`.
    """
    given = given or Given()
    paths: dict[str, Any] = {
        name: Path(path) for name, path in files.items() if not getattr(given, name)
    }
    return given_cluster(replace(given, **paths)).access


class _Value(NamedTuple):
    """A setting, and the place that sets it, for messages."""

    value: Any
    where: str
    folder: Path | None = None
    """Of the file that has it: its paths begin there."""


class _Settings:
    """The settings of one command, each from the first place that has it."""

    def __init__(self, given: Given, environ: Mapping[str, str], file: Path | None) -> None:
        self._given = given
        self._environ = environ
        self._file = file
        self._document = {} if file is None else _document(file)

    def addresses(self) -> tuple[str, ...]:
        found = self._find("namesrv")
        if found is None:
            return ()
        addresses = addresses_of(found.where, _text(found, lists=True), typed=True)
        if not addresses:
            raise ConfigError(found.where, "is blank: write HOST:PORT;HOST:PORT, or leave it out")
        return addresses

    def access(self) -> ClusterAccess | None:
        found = ClusterAccess(self._key_file(), self._tls())
        return found if found.key_file or found.tls else None

    def _key_file(self) -> KeyFile | None:
        found = self._find("access_key_file")
        return None if found is None else KeyFile(_path(found), found.where)

    def _tls(self) -> Tls | None:
        found = {name: self._find(name) for name in HELP if name.startswith("tls_")}
        switch = self._find("tls")
        if not (any(found.values()) if switch is None else _switch(switch)):
            return None
        ca, cert, key = (
            None if (each := found[name]) is None else _path(each)
            for name in ("tls_ca", "tls_cert", "tls_key")
        )
        name = found["tls_server_name"]
        try:
            return Tls(TlsFiles(ca, cert, key, "" if name is None else _text(name)))
        except ConfigError as error:
            place = found.get(error.field.removeprefix("--").replace("-", "_"))
            where = error.field if place is None else place.where
            raise ConfigError(where, error.problem) from None

    def _find(self, name: str) -> _Value | None:
        given = getattr(self._given, name)
        if given not in (None, ""):
            prefix = self._given.tls_prefix if name.startswith("tls") else ""
            return _Value(given, f"--{prefix}{name.replace('_', '-')}")
        for variable in (f"FAILBACK_{name.upper()}", *_OTHER_VARIABLES.get(name, ())):
            if text := self._environ.get(variable):
                return _Value(text, variable)
        if name in self._document and self._file is not None:
            where = f"{name} in {self._file}"
            return _Value(self._document[name], where, self._file.parent)
        return None


def _document(file: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), f"cannot be read: {why(error)}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(file), f"is no TOML: {error}") from None
    for name in document:
        if name not in HELP:
            near = did_you_mean(name, HELP) or f"; there is {', '.join(HELP)}"
            raise ConfigError(str(file), f"{name}: there is no such setting{near}")
    return document


def _text(found: _Value, *, lists: bool = False) -> str:
    value = found.value
    if lists and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ";".join(value)
    if not isinstance(value, str):
        raise ConfigError(found.where, f"must be a text in quotes, got {value!r}")
    return value


def _path(found: _Value) -> Path:
    if isinstance(found.value, Path):
        return found.value
    path = Path(_text(found)).expanduser()
    return path if found.folder is None else found.folder / path


def _switch(found: _Value) -> bool:
    value = found.value
    if isinstance(value, bool):
        return value
    if found.folder is None and isinstance(value, str):
        if value.lower() in _TRUE:
            return True
        if value.lower() in _FALSE:
            return False
    raise ConfigError(found.where, f"must be true or false, got {value!r}")
