"""Holds what the watches show against lists, once a period, and puts right what they missed.

A watch that breaks for longer than the server remembers begins again with a list. What was
deleted in between is in no list and in no event: the indices keep it for ever. The same goes for
any other event that never came. A list asks the server itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from failback.kube.asynchronous import Kube
from failback.kube.errors import ApiError
from failback.operator.controller.loops import Key
from failback.operator.kubernetes.store import Object, Store, owners_of, where_of

logger = logging.getLogger(__name__)

_LATE_SECONDS: Final = 1.0
"""An event may come so much later than the list that shows the same change."""


class Recheck:
    """One for the whole process."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        *,
        kinds: Mapping[str, str],
        namespaces: Collection[str],
        period_seconds: float,
        wake: Callable[[Key], None],
        late_seconds: float = _LATE_SECONDS,
    ) -> None:
        """Make it.

        Args:
            kinds: Kind → label selector of its watch, empty for all objects.
            namespaces: Those that are watched; empty = the whole cluster.
            wake: Told of every custom resource that something was missed about.
        """
        self._kube, self._store, self._wake = kube, store, wake
        self._kinds = kinds
        self._namespaces = tuple(namespaces) or ("",)
        self._period_seconds, self._late_seconds = period_seconds, late_seconds

    async def run(self) -> None:
        """Check everything once a period, until cancelled."""
        while True:
            await asyncio.sleep(self._period_seconds)
            for kind, selector in self._kinds.items():
                for namespace in self._namespaces:
                    try:
                        await self.check(kind, namespace, selector)
                    except Exception:  # the boundary of a check, as that of a pass
                        logger.exception("recheck of %s failed", kind)

    async def check(self, kind: str, namespace: str, selector: str = "") -> None:
        """Check the objects of one kind; a list that fails is made again with the next period."""
        known = self._store.versions(kind, namespace)
        try:
            listed = await self._kube.list_all(kind, namespace, selector, metadata_only=True)
            await asyncio.sleep(self._late_seconds)
            stale = self._store.stale(kind, namespace, listed)
            newer = [item for found in stale for item in await self._read(kind, found, selector)]
        except ApiError as error:
            logger.debug("recheck: %s", error)
            return
        missed = self._store.correct(kind, namespace, known, listed, newer)
        for item in missed:
            logger.info("the watch missed a change of %s %s/%s", kind, *where_of(item))
            for key in keys_of(item):
                self._wake(key)

    async def _read(self, kind: str, listed: Object, selector: str) -> list[Object]:
        """Return the whole object, by a list: the right to watch is the right to list."""
        metadata = listed["metadata"]
        where = (kind, metadata["namespace"], selector)
        found = await self._kube.list_all(*where, name=metadata["name"])
        return [{**item, "kind": kind} for item in found]


def keys_of(item: Object) -> list[Key]:
    """Return the custom resources that an object concerns: itself or its owners."""
    own: Key = (item["kind"], *where_of(item))
    return [own, *((owner, namespace, name) for namespace, owner, name in owners_of(item))]
