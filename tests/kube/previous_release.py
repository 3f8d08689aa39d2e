"""What the previous release rendered, for tests of an upgrade of the operator.

The objects are in ``tests/data/operator/previous-release.yaml``. They belong to the NameServer and
the BrokerCluster of a :class:`LivedCluster` with :data:`SPEC`. At a release the file is made again
by ``python -m tests.kube.previous_release``, from what is to be the previous release from then
on.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from failback.operator.render.context import kubernetes_context
from failback.operator.render.objects import render
from failback.operator.schema.decoding import decode
from tests.support.operator.real_cluster import CONFIG

Object = dict[str, Any]
PREVIOUS: Final = "0.0.9"
"""The version that the objects carry: not that of this release."""
GROUP_VERSION: Final = "failback.dev/v1alpha1"
SPEC: Final[Object] = {"pairs": 1, "slavesPerPair": 1}
_FILE: Final = Path(__file__).parents[1] / "data" / "operator" / "previous-release.yaml"
NAMESPACE: Final = "shop-of-before"
"""Where the objects live: addresses, and so the hash of what needs a restart, have it in them."""
_UIDS: Final = {"NameServer": "uid-of-the-nameserver", "BrokerCluster": "uid-of-the-cluster"}
_HASH: Final = "failback.dev/applied-hash"


def previous_objects(uids: Mapping[str, str]) -> list[Object]:
    """Return the objects as the previous release applied them in :data:`NAMESPACE`.

    Args:
        uids: Kind → uid of the resource that owns the objects.
    """
    text = _FILE.read_text()
    for kind, stands_for in _UIDS.items():
        text = text.replace(stands_for, uids[kind])
    return [_hashed(item) for item in YAML(typ="safe", pure=True).load_all(text)]


def _hashed(item: Object) -> Object:
    """Return an object with the mark of its content, as its operator wrote it."""
    text = json.dumps(item, sort_keys=True, separators=(",", ":"))
    done = copy.deepcopy(item)
    marks = done["metadata"].setdefault("annotations", {})
    marks[_HASH] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return done


def _resources() -> list[Object]:
    servers = {"replicas": 1, "config": {"failbackTimeScale": "0.1"}}
    cluster = {"nameServerRef": {"name": "main"}, "config": CONFIG, **SPEC}
    return [
        {
            "apiVersion": GROUP_VERSION,
            "kind": kind,
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": _UIDS[kind]},
            "spec": spec,
        }
        for kind, name, spec in (
            ("NameServer", "main", servers),
            ("BrokerCluster", "orders", cluster),
        )
    ]


def _write() -> None:
    context = kubernetes_context(NAMESPACE, PREVIOUS)
    objects = render([decode(item) for item in _resources()], context)
    yaml = YAML()
    yaml.width = 4096  # no folding: it could cut what is replaced
    yaml.representer.ignore_aliases = lambda _: True
    sys.stdout.write("# Objects of the previous release; see tests/kube/previous_release.py.\n")
    yaml.dump_all(objects, sys.stdout)


if __name__ == "__main__":
    _write()
