"""What makes settings of broker.conf impossible or dangerous, beyond the type of one value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from failback.broker.config.config_keys import DANGEROUS, FIXED_AT_START, NOT_OFFERED
from failback.client.remoting.addresses import addresses_of
from failback.protocol.errors import ConfigError

_ACL: Final = "aclEnable"
_DANGEROUS: Final = {key.lower(): why for key, why in DANGEROUS.items()}
_DELAYS: Final = r"\s*\d+[smhd](\s+\d+[smhd])*\s*"
_HOURS: Final = r"\s*([01]?\d|2[0-3])\s*(;\s*([01]?\d|2[0-3])\s*)*"


class Settings(Protocol):
    """The fields of a BrokerConfig that are checked here."""

    broker_id: int
    namesrv_addr: str
    ha_master_address: str
    message_delay_level: str
    delete_when: str
    file: Path | None

    @property
    def is_slave(self) -> bool: ...

    def to_properties(self) -> dict[str, str]: ...


class SlaveIdError(ConfigError):
    """A slave without an id above 0. The original exits with -3 here."""

    def __init__(self, broker_id: int, *, file: Path | None = None) -> None:
        super().__init__("brokerId", f"must be above 0 for a SLAVE, is {broker_id}", file=file)


def check_together(config: Settings, file: Path | None = None) -> None:
    """Check addresses, times and the id of a slave.

    Raises:
        ConfigError: Names the key.
    """
    if config.is_slave and config.broker_id <= 0:
        raise SlaveIdError(config.broker_id, file=file)
    addresses_of("namesrvAddr", config.namesrv_addr, file=file)
    if len(addresses_of("haMasterAddress", config.ha_master_address, file=file)) > 1:
        problem = f"a slave has one master, is {config.ha_master_address!r}"
        raise ConfigError("haMasterAddress", problem, file=file)
    if not re.fullmatch(_DELAYS, config.message_delay_level, re.ASCII):
        problem = f"must be delays like 1s 5m 2h 1d, is {config.message_delay_level!r}"
        raise ConfigError("messageDelayLevel", problem, file=file)
    if not re.fullmatch(_HOURS, config.delete_when, re.ASCII):
        problem = f"must be hours of the day like 04 or 04;16, is {config.delete_when!r}"
        raise ConfigError("deleteWhen", problem, file=file)


def refuse_dangerous(given: Mapping[str, str], file: Path | None = None) -> None:
    """Refuse what this broker can't do, where it would do something else instead.

    Raises:
        ConfigError: Names the key, and says what would come of it.
    """
    for key, value in given.items():
        # What a slip in a name leaves out is no less meant: Apache's DLedger keys lack a d.
        why = _DANGEROUS.get(key.lower().replace("dledger", "dleger"))
        if why is not None and is_true(value):
            raise ConfigError(key, f"is true: {why}", file=file)
        if key != _ACL and key.lower() == _ACL.lower() and is_true(value):
            raise ConfigError(
                key, f"is no key, so that all requests are taken: write {_ACL}", file=file
            )
    # 4.9.8 keeps the log in several folders where a comma stands; here the others' are missed.
    for key in ("storePathRootDir", "storePathCommitLog"):
        if "," in given.get(key, ""):
            raise ConfigError(key, f"must be one folder, is {given[key]!r}", file=file)
    for key in ("storePathRootDir", "storePathCommitLog"):
        if re.search(r"\s#", given.get(key, "")):
            problem = f"is {given[key]!r}: a comment needs a line of its own"
            raise ConfigError(key, problem, file=file)
    if given.get("readOnlyCommitLogStorePaths", "").strip():
        problem = "this broker reads one folder only, so that messages would be missing"
        raise ConfigError("readOnlyCommitLogStorePaths", problem, file=file)


def refuse_late(before: Settings, after: Settings, changed: set[str]) -> None:
    """Refuse what a running broker can't take up.

    Raises:
        ConfigError: Names all such keys.
    """
    late = changed & FIXED_AT_START
    if "brokerRole" in changed and before.is_slave != after.is_slave:
        late = late | {"brokerRole"}
    if late:
        one = f" by its line in {before.file}" if before.file else ""
        problem = f"can't change while the broker runs, only{one} at a start: nothing was changed"
        raise ConfigError(", ".join(sorted(late)), problem)
    values = after.to_properties()
    for key in sorted(changed & NOT_OFFERED.keys()):
        if is_true(values[key]):
            raise ConfigError(key, f"is not offered: {NOT_OFFERED[key]}; nothing was changed")
    refuse_dangerous({key: values[key] for key in changed})


def is_true(text: str | None) -> bool:
    """Tell what Boolean.parseBoolean says of a text without the blanks around it."""
    return (text or "").strip().lower() == "true"
