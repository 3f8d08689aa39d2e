"""namesrv.conf: a Java properties file. Unknown keys are kept and shown, as the original does.

Known keys, with their defaults (NamesrvConfig and NettyServerConfig, apache/rocketmq 4.9.8,
and those of ours): see :data:`DEFAULTS`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from failback.client.remoting.guarded.tls_properties import BY_FILE, MODES
from failback.common.text import nearest, why
from failback.protocol.calls import write_properties
from failback.protocol.errors import ConfigError
from failback.protocol.frames import MAX_FRAME_BYTES
from failback.protocol.names import check_room
from failback.protocol.properties import has_control, listed, properties_of
from failback.protocol.route import MOST_INFLATED_BYTES

logger = logging.getLogger(__name__)

_MOST_UNKNOWN: Final = 64
ACL_MODES: Final = ("off", "warn", "enforce")
DEFAULTS: Final[dict[str, str]] = {
    "listenPort": "9876",
    "kvConfigPath": os.path.join(os.path.expanduser("~"), "namesrv", "kvConfig.json"),
    "configStorePath": os.path.join(os.path.expanduser("~"), "namesrv", "namesrv.properties"),
    "configBlackList": "configBlackList;configStorePath;kvConfigPath",
    "orderMessageEnable": "false",
    "serverChannelMaxIdleTimeSeconds": "120",
    "bindAddress": "0.0.0.0",
    "failbackTimeScale": "1.0",
    "failbackHttpPort": "0",
    "failbackHttpAddress": "",
    "failbackMaxConnections": "10000",
    "failbackMaxConnectionsPerAddress": "2000",
    "failbackMaxBrokers": "10000",
    "failbackMaxTopics": "200000",
    "failbackMaxKvEntries": "10000",
    "failbackMaxRegistrationBytes": str(MOST_INFLATED_BYTES),
    "failbackMaxUnfinishedBytes": "134217728",
    "aclEnable": "false",
    "failbackAclMode": "enforce",
    "failbackAccessFolder": "",
    "failbackTlsMode": BY_FILE,
}
"""``bindAddress``, ``aclEnable`` and what begins with failback is ours: the address to listen on
and a factor on every interval. So are the port (0 = none) and the address of /livez and /readyz
(default: bindAddress), and the bounds of what peers may make a name server keep. ``aclEnable``:
whether registrations and orders need the signature of an admin of ``plain_acl.yml``;
``failbackAclMode`` is off, warn (count what would be refused) or enforce. The folder is that of
``plain_acl.yml`` and ``tls.properties`` (default: that of the file of settings), the mode of TLS
what ``tls.properties`` says (without it disabled)."""
LIVE: Final = frozenset({"configBlackList", "orderMessageEnable", "failbackAclMode"})
"""What a running name server takes up; a request to change another key of ours is refused."""
_TEXTS: Final = frozenset({"configBlackList", "failbackHttpAddress"})


def _unknown(key: str, line: int) -> str:
    near = nearest(key, DEFAULTS, cutoff=0.85)
    return f"{key} (line {line}" + (f'; did you mean "{near}"?)' if near else ")")


class NamesrvConfig:
    """The settings in force. Typed access to the known ones, text access to all."""

    def __init__(self, properties: Mapping[str, str], file: Path | None = None) -> None:
        """Check and take ``properties``.

        Raises:
            ConfigError: A value cannot be read: names file and key.
        """
        # 4.9.8 fails to read an empty number and goes on with the default.
        given = {key: text for key, text in properties.items() if text.strip() or key in _TEXTS}
        self._properties = {**DEFAULTS, **given}
        self._file = file
        for key in DEFAULTS:
            if has_control(self._properties[key]):
                raise self._error(key, "holds a control character: a \\ itself is written \\\\")
        if file is not None:
            self._properties["configStorePath"] = str(file)
        self.listen_port = self._integer("listenPort", 0, 65535)
        self.http_port = self._integer("failbackHttpPort", 0, 65535)
        self.max_connections = self._integer("failbackMaxConnections", 1, 2**31 - 1)
        self.max_connections_per_address = self._integer(
            "failbackMaxConnectionsPerAddress", 1, 2**31 - 1
        )
        self.max_brokers = self._integer("failbackMaxBrokers", 1, 2**31 - 1)
        self.max_topics = self._integer("failbackMaxTopics", 1, 2**31 - 1)
        self.max_kv_entries = self._integer("failbackMaxKvEntries", 1, 2**31 - 1)
        self.max_registration_bytes = self._integer(
            "failbackMaxRegistrationBytes", MOST_INFLATED_BYTES, MAX_FRAME_BYTES
        )
        self.max_unfinished_bytes = self._integer(
            "failbackMaxUnfinishedBytes", 16 * 1024**2, 2**63 - 1
        )
        self.idle_seconds = self._integer("serverChannelMaxIdleTimeSeconds", 1, 2**31 - 1)
        self.time_scale = self._factor("failbackTimeScale")
        self.order_message_enable = self._boolean("orderMessageEnable")
        self.acl_enable = self._boolean("aclEnable")
        self.acl_mode = self._choice("failbackAclMode", ACL_MODES)
        self.bind_address = self._properties["bindAddress"].strip()
        self.http_address = self._properties["failbackHttpAddress"].strip() or self.bind_address
        folder = self._properties["failbackAccessFolder"].strip()
        self.access_folder = Path(folder) if folder else file.parent if file else None
        self.tls_mode = self._choice("failbackTlsMode", (BY_FILE, *MODES))
        self.kv_config_path = Path(self._properties["kvConfigPath"]).expanduser()
        self.config_store_path = Path(self._properties["configStorePath"]).expanduser()

    @classmethod
    def from_file(cls, file: Path) -> NamesrvConfig:
        """Read a file.

        Raises:
            ConfigError: It is missing, unreadable, or holds a value that cannot be read.
        """
        try:
            read = properties_of(file.read_bytes(), file)
        except OSError as error:
            raise ConfigError("-c", why(error), file=file) from error
        try:
            config = cls(read.values, file)
        except ConfigError as error:
            error.line = read.lines.get(error.field)
            raise
        for remark in read.remarks:
            logger.warning("%s: %s", file, remark)
        unknown = [_unknown(key, line) for key, line in read.lines.items() if key not in DEFAULTS]
        if unknown:
            logger.warning("%s: without effect here: %s", file, ", ".join(unknown))
        return config

    def updated(self, changes: Mapping[str, str]) -> NamesrvConfig:
        """Return the settings after ``changes``.

        Raises:
            ConfigError: A value cannot be read, or a running name server can't take it up.
            TableFull: There would be more unknown keys than are kept.
        """
        properties = {**self._properties, **changes}
        unknown = len(properties.keys() - DEFAULTS.keys())
        if unknown > len(self._properties.keys() - DEFAULTS.keys()):
            check_room("unknown keys", unknown - 1, _MOST_UNKNOWN)
        after = NamesrvConfig(properties, self._file)
        old, new = self._properties, after._properties
        late = [key for key in DEFAULTS if old[key] != new[key] and key not in LIVE]
        if late:
            problem = "can't change while the name server runs: nothing was changed"
            raise ConfigError(", ".join(sorted(late)), problem)
        return after

    def is_protected(self, keys: Mapping[str, str]) -> bool:
        """Whether one of ``keys`` may not be changed by a request."""
        black_list = set(self._properties["configBlackList"].split(";"))
        return not black_list.isdisjoint(keys)

    def to_text(self) -> str:
        """All settings, one ``key=value`` per line (MixAll.properties2String)."""
        return listed(dict(sorted(self._properties.items())))

    def to_file(self) -> bytes:
        """The settings as a properties file; only what differs from the defaults."""
        changed = {
            key: value
            for key, value in sorted(self._properties.items())
            if DEFAULTS.get(key) != value and key != "configStorePath"
        }
        return write_properties(changed)

    def _integer(self, key: str, least: int, greatest: int) -> int:
        text = self._properties[key].strip()
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= greatest:
            raise self._error(key, f'"{text}" is no number from {least} to {greatest}')
        return int(text)

    def _factor(self, key: str) -> float:
        text = self._properties[key].strip()
        try:
            factor = float(text)
        except ValueError:
            factor = 0.0
        if not 0 < factor < float("inf"):
            raise self._error(key, f'"{text}" is no number above 0')
        return factor

    def _boolean(self, key: str) -> bool:
        text = self._properties[key].strip().lower()
        if text not in ("true", "false"):
            raise self._error(key, f'"{text}" is neither true nor false')
        return text == "true"

    def _choice(self, key: str, among: Sequence[str]) -> str:
        text = self._properties[key].strip()
        if text not in among:
            raise self._error(key, f"must be one of {', '.join(among)}")
        return text

    def _error(self, key: str, problem: str) -> ConfigError:
        return ConfigError(key, problem, file=self._file)
