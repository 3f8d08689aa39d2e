"""Offset tables of a RoleSwitch: their comparison, and their form in a ConfigMap. Pure.

A table is what GET_ALL_CONSUMER_OFFSET (43) answers: ``topic@group`` → queue id → next offset.
Stored as gzip of JSON in ``binaryData``; equal tables give equal bytes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from failback.operator.planning.observed.observed import Object
from failback.operator.planning.plan.types import SaveSnapshot
from failback.operator.render.common import MOST_NAME, object_name
from failback.protocol.body import check_weight
from failback.protocol.errors import ProtocolError
from failback.protocol.message import inflate

Table = Mapping[str, Mapping[int, int]]

MAX_BYTES: Final = 900 * 1024
"""An object of the API server ends at 1 MiB, base64 not counted."""
LABEL: Final = "failback.dev/taken"
"""Annotation that says which snapshot of which switch this is."""
_MOST_TEXT_BYTES: Final = 16 * 1024**2
"""What :data:`MAX_BYTES` hold, of half a million queues."""
_TIMES: Final = 8
_FIELD: Final = "offsets.json.gz"
_GZIP: Final = 31  # zlib's window bits for a gzip envelope, which then holds no time


def name_of(role_switch: str) -> str:
    """Return the name of the ConfigMap that belongs to a RoleSwitch."""
    return object_name("fbs", role_switch, most=MOST_NAME)


def largest(*tables: Table) -> dict[str, dict[int, int]]:
    """Return the larger offset of every key that any table has."""
    found: dict[str, dict[int, int]] = {}
    for table in tables:
        for key, queues in table.items():
            mine = found.setdefault(key, {})
            for queue, offset in queues.items():
                mine[queue] = max(offset, mine.get(queue, offset))
    return found


def raised(table: Table, by: Table) -> tuple[tuple[str, int, int], ...]:
    """Return ``(topic@group, queue, offset)`` of ``by`` wherever it is above ``table``."""
    return tuple(
        (key, queue, offset)
        for key, queue, offset in _items(by)
        if offset > table.get(key, {}).get(queue, -1)
    )


def covers(table: Table, other: Table) -> bool:
    """Tell whether ``table`` is nowhere below ``other``."""
    return not raised(table, other)


def count_above(table: Table, other: Table) -> int:
    """Return of how many keys that both have ``table`` has the larger offset."""
    return sum(
        offset > other[key][queue]
        for key, queue, offset in _items(table)
        if queue in other.get(key, {})
    )


def encode(table: Table) -> bytes:
    """Return the table as compressed JSON."""
    text = json.dumps(
        {
            key: {str(queue): offset for queue, offset in sorted(table[key].items())}
            for key in table
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    packer = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
    return packer.compress(text.encode()) + packer.flush()


def decode(packed: bytes) -> dict[str, dict[int, int]]:
    """Return the table that :func:`encode` packed.

    Raises:
        ValueError: It is none, or larger than any that is kept.
    """
    try:
        text = inflate(packed, _MOST_TEXT_BYTES, is_gzip=True)
        check_weight(text, _MOST_TEXT_BYTES * _TIMES)
        return msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except (ProtocolError, msgspec.MsgspecError) as error:
        raise ValueError(f"not an offset table: {error}") from error


def manifest(save: SaveSnapshot, namespace: str, cluster: str) -> dict[str, Any]:
    """Return the ConfigMap that holds a snapshot of a cluster's offsets."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": save.name,
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/name": "failback",
                "app.kubernetes.io/managed-by": "failback-operator",
                "failback.dev/cluster": cluster,
            },
            "annotations": {LABEL: save.label},
            "ownerReferences": [dict(save.owner)],
        },
        "binaryData": {_FIELD: base64.b64encode(encode(save.offsets)).decode()},
    }


def read(config_map: Object | None) -> tuple[dict[str, dict[int, int]] | None, str]:
    """Return the table in a ConfigMap and its label; ``None`` when there is no readable one."""
    if config_map is None:
        return None, ""
    label = (config_map["metadata"].get("annotations") or {}).get(LABEL, "")
    try:
        packed = base64.b64decode((config_map.get("binaryData") or {})[_FIELD], validate=True)
        return decode(packed), label
    except (KeyError, ValueError):
        return None, label


def _items(table: Table) -> Iterator[tuple[str, int, int]]:
    for key in sorted(table):
        for queue in sorted(table[key]):
            yield key, queue, table[key][queue]
