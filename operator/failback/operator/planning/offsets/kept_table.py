"""The offsets of all pairs of a cluster, and their form in a ConfigMap. Pure."""

from __future__ import annotations

import base64
from typing import Any, Final

from failback.carry.restoring import Pairs
from failback.operator.kinds.offset_snapshot import OffsetSnapshot
from failback.operator.planning.observed.observed import Object
from failback.operator.planning.operations.switching.snapshot import decode, encode
from failback.protocol.route import split_offset_key

MAX_BYTES: Final = 750 * 1024
"""In base64 and with its metadata it stays below the 1 MiB that a manifest may have."""
TOO_LARGE: Final = f"the offsets have more than {MAX_BYTES} bytes, compressed"
_FIELD: Final = "offsets.json.gz"


def groups_of(pairs: Pairs) -> set[str]:
    """Return the groups that have entries."""
    return {split_offset_key(key)[1] for table in pairs.values() for key in table}


def count_of(pairs: Pairs) -> int:
    """Return how many offsets there are."""
    return sum(len(queues) for table in pairs.values() for queues in table.values())


def packed(pairs: Pairs) -> bytes | None:
    """Return the offsets as compressed JSON, ``None`` when that is too large for an object."""
    flat = {f"{pair}/{key}": table[key] for pair, table in pairs.items() for key in table}
    found = encode(flat)
    return found if len(found) <= MAX_BYTES else None


def manifest(owner: OffsetSnapshot, name: str, content: bytes) -> dict[str, Any]:
    """Return the ConfigMap that holds a snapshot. It goes with its owner, not with the cluster."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": {
                "app.kubernetes.io/component": "offsets",
                "app.kubernetes.io/managed-by": "failback-operator",
            },
            "ownerReferences": [
                {
                    "apiVersion": owner.api_version,
                    "kind": owner.kind,
                    "name": owner.name,
                    "uid": owner.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "binaryData": {_FIELD: base64.b64encode(content).decode()},
    }


def read(config_map: Object | None) -> dict[str, dict[str, dict[int, int]]] | None:
    """Return the offsets in a ConfigMap; ``None`` when there is no readable one."""
    try:
        data = (config_map or {}).get("binaryData") or {}
        flat = decode(base64.b64decode(data[_FIELD], validate=True))
    except (KeyError, ValueError):
        return None
    found: dict[str, dict[str, dict[int, int]]] = {}
    for name, queues in flat.items():
        pair, _, key = name.partition("/")
        found.setdefault(pair, {})[key] = queues
    return found
