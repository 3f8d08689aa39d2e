"""Kubernetes events: posted once per message, named so that a repetition is refused."""

from __future__ import annotations

import datetime
import hashlib
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from failback.kube.asynchronous import Kube
from failback.kube.errors import ApiError
from failback.operator.planning.plan.types import Event
from failback.operator.settings import MANAGER

logger = logging.getLogger(__name__)

_QUIET_SECONDS: Final = 600.0
_MAX_NOTE: Final = 1000
_MAX_REMEMBERED: Final = 4096


class Recorder:
    """Posts events; the same warning about one object is posted once in ten minutes."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._posted: dict[tuple[str, str, str], float] = {}

    async def post(self, about: Mapping[str, Any], event: Event) -> None:
        """Post one event about an object. Never fails: an event is a courtesy."""
        target = event.about or about
        metadata = target.get("metadata", target)
        key = (str(metadata.get("uid", "")), event.reason, event.message)
        now = time.monotonic()
        if event.warning and now - self._posted.get(key, -_QUIET_SECONDS) < _QUIET_SECONDS:
            return
        if len(self._posted) > _MAX_REMEMBERED:
            self._posted.clear()
        self._posted[key] = now
        try:
            await self._kube.create(_manifest(target, metadata, event))
        except ApiError as error:
            if error.code != 409:
                logger.warning("event %s not posted: %s", event.reason, error)


def _manifest(
    target: Mapping[str, Any], metadata: Mapping[str, Any], event: Event
) -> dict[str, Any]:
    moment = datetime.datetime.now(datetime.UTC)
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    text = f"{metadata.get('uid')}\0{event.reason}\0{event.message}\0{moment.timestamp():.1f}"
    suffix = hashlib.sha256(text.encode()).hexdigest()[:16]
    namespace = metadata["namespace"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{suffix}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": target.get("apiVersion"),
            "kind": target.get("kind"),
            "name": metadata["name"],
            "namespace": namespace,
            "uid": metadata.get("uid"),
        },
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason,
        "message": event.message[:_MAX_NOTE],
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
