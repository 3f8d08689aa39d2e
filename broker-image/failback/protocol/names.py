"""Which names a peer may send: topics, groups, clients, brokers, keys, hosts. Pure.

Code that keeps, logs or writes a new name checks it here first. Topics and groups
follow the 4.9.8 client, which refuses others before it sends them. A name that is in a table
already, from a store of older days, is served as it is.

Source: Validators, TopicValidator, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from failback.common.text import is_visible, visible
from failback.protocol.codes import (
    RESERVED_GROUP_PREFIXES,
    RESERVED_GROUPS,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)
from failback.protocol.errors import ProtocolError
from failback.protocol.message import DLQ_PREFIX, MAX_TOPIC_BYTES, RETRY_PREFIX

GROUP_CHARS: Final = 255
CLIENT_CHARS: Final = 512
BROKER_CHARS: Final = 255
KEY_CHARS: Final = 255
VALUE_CHARS: Final = 65_536
MOST_QUEUES: Final = 65_536
"""Of a topic or a group: no offset is kept of a queue beyond."""
_ADDRESS_CHARS: Final = 300
_SHOWN_CHARS: Final = 60

_NAME: Final = re.compile(r"[%|A-Za-z0-9_-]+", re.ASCII)
# A broker without a name of its own has its host's; letters are those of any language, for no
# client looks at them.
_BROKER: Final = re.compile(r"[%|\w.-]+")
_KEY: Final = re.compile(r"[%|A-Za-z0-9._:@/-]+", re.ASCII)
_ADDRESS: Final = re.compile(
    r"(?:\[[0-9A-Za-z:.%_-]+\]|[0-9A-Za-z](?:[0-9A-Za-z:._-]*[0-9A-Za-z])?|::1?):([0-9]{1,5})",
    re.ASCII,
)


class NameRefused(ProtocolError):
    """A name that nothing may be called. The connection that brought it lives on."""


class TableFull(ProtocolError):
    """A table has as many entries as its owner keeps: nothing is added before some are deleted."""


def instance_of(name: str) -> str:
    """The instance (Java's namespace) that a topic or group lies in; empty where in none.

    ``MQ_INST_1%orders`` and ``%RETRY%MQ_INST_1%billing`` lie in ``MQ_INST_1``.
    Source: NamespaceUtil, apache/rocketmq 4.9.8.
    """
    found, separator, _ = name.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX).partition("%")
    return found if separator else ""


def without_instance(name: str) -> str:
    """A topic or group as its clients name it; the prefix of a retry topic stays."""
    instance = instance_of(name)
    return name.replace(f"{instance}%", "", 1) if instance else name


def is_meant(name: str, wanted: Container[str]) -> bool:
    """Whether a group or topic is among the named ones: whole, or as clients do."""
    return name in wanted or without_instance(name) in wanted


def check_room(what: str, count: int, most: int) -> None:
    """Refuse one more entry where there are ``most`` already.

    Raises:
        TableFull: Names what there are so many of.
    """
    if count >= most:
        raise TableFull(f"no further {what} are kept here: there are {count}, at most {most}")


def check_topic(topic: str) -> None:
    """Refuse what no topic may be called.

    The retry topic and the dead letters of a group may be as long as the group's name makes them.

    Raises:
        NameRefused: Says what is wrong.
    """
    prefix = next((each for each in (RETRY_PREFIX, DLQ_PREFIX) if topic.startswith(each)), "")
    most = len(prefix) + GROUP_CHARS if prefix else MAX_TOPIC_BYTES
    _check("topic", topic, _NAME, most)


def is_topic(topic: str) -> bool:
    """Whether a topic may be called so."""
    try:
        check_topic(topic)
    except NameRefused:
        return False
    return True


def is_reserved_group(group: str) -> bool:
    """Whether a group is one of brokers, clients or tools, or its name is that of a topic."""
    return group in RESERVED_GROUPS or group.startswith(RESERVED_GROUP_PREFIXES)


def is_system_topic(topic: str) -> bool:
    """Whether a topic is of the brokers' own; retry topics and dead letters are not."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def check_group(group: str) -> None:
    """Refuse what no group may be called. Raises as :func:`check_topic`."""
    _check("group", group, _NAME, GROUP_CHARS)


def check_client_id(client_id: str) -> None:
    """Refuse a client id that cannot be shown, or is too long. Raises as :func:`check_topic`."""
    _check_text("client id", client_id, CLIENT_CHARS)


def check_broker_name(name: str) -> None:
    """Refuse what no broker may be called. Raises as :func:`check_topic`."""
    _check("broker name", name, _BROKER, BROKER_CHARS)


def check_cluster_name(name: str) -> None:
    """Refuse what no cluster may be called. Raises as :func:`check_topic`."""
    _check("cluster name", name, _BROKER, BROKER_CHARS)


def check_key(key: str) -> None:
    """Refuse what no key or namespace of settings may be called. Raises as :func:`check_topic`."""
    _check("key", key, _KEY, KEY_CHARS)


def check_value(key: str, value: str) -> None:
    """Refuse a value of several lines, with control characters, or too long.

    Raises:
        NameRefused: Names the key.
    """
    if len(value) > VALUE_CHARS:
        raise NameRefused(f"{key}: the value has {len(value)} characters, at most {VALUE_CHARS}")
    # A tab ends no line.
    if not is_visible(value.replace("\t", " ")):
        shown = visible(value, _SHOWN_CHARS)
        raise NameRefused(f'{key}: the value "{shown}" has characters that cannot be shown')


def check_setting(key: str, value: str) -> None:
    """Refuse a setting that no file of settings should have. Raises as :func:`check_value`."""
    check_key(key)
    check_value(key, value)


def check_number(field: str, number: int, most: int) -> None:
    """Refuse a number below 0 or above ``most``. Raises as :func:`check_topic`."""
    if not 0 <= number <= most:
        raise NameRefused(f"{field}: must be between 0 and {most}, is {number}")


def check_address(what: str, address: str) -> None:
    """Refuse what is no ``host:port``. Raises as :func:`check_topic`."""
    found = _ADDRESS.fullmatch(address) if len(address) <= _ADDRESS_CHARS else None
    if found is None or int(found[1]) > 65_535:
        raise NameRefused(f'the {what} "{visible(address, _SHOWN_CHARS)}" is no host:port')


def _check(what: str, name: str, allowed: re.Pattern[str], most: int) -> None:
    if not name:
        raise NameRefused(f"the {what} is empty")
    if len(name) > most:
        shown = visible(name, _SHOWN_CHARS)
        raise NameRefused(f'the {what} "{shown}" is longer than {most} characters')
    if not allowed.fullmatch(name):
        characters = allowed.pattern.removesuffix("+")
        shown = visible(name, _SHOWN_CHARS)
        raise NameRefused(f'the {what} "{shown}" has characters other than {characters}')


def _check_text(what: str, text: str, most: int) -> None:
    if len(text) > most:
        shown = visible(text, _SHOWN_CHARS)
        raise NameRefused(f'the {what} "{shown}" is longer than {most} characters')
    if not is_visible(text):
        shown = visible(text, _SHOWN_CHARS)
        raise NameRefused(f'the {what} "{shown}" has characters that cannot be shown')
