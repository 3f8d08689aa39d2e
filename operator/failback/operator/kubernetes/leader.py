"""Leader election by a Lease: of several operators one works, the others wait.

A leader that can't renew its Lease ends its process at once, before another may take over. It can't
know how much of its work is under way. Clocks of two machines are never compared: a Lease has run
out when an operator has seen it unchanged for as long as it lasts.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from failback.kube import leases
from failback.kube.asynchronous import Kube
from failback.kube.errors import ApiError
from failback.kube.leases import LeaseView
from failback.operator.settings import Settings

logger = logging.getLogger(__name__)

LEASE: Final = "failback-operator"
_LEASE_SECONDS: Final = 15
_RENEW_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 2.0
_LOST: Final = 1


@asynccontextmanager
async def lead(kube: Kube, settings: Settings, stop: asyncio.Event) -> AsyncIterator[None]:
    """Wait for the Lease, hold it while the block runs, hand it over at its end."""
    view = LeaseView()
    while not stop.is_set() and not await _try(kube, settings, view):
        with suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_SECONDS):
                await stop.wait()
    if stop.is_set():
        yield
        return
    logger.info("%s leads", settings.identity)
    renewal = asyncio.create_task(_renew(kube, settings))
    try:
        yield
    finally:
        renewal.cancel()
        with suppress(asyncio.CancelledError):
            await renewal
        with suppress(ApiError):
            await _hand_over(kube, settings)


async def _renew(kube: Kube, settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    renewed, view = loop.time(), LeaseView()
    while True:
        await asyncio.sleep(_RENEW_SECONDS)
        if await _try(kube, settings, view):
            renewed = loop.time()
        elif loop.time() - renewed > _LEASE_SECONDS - _RENEW_SECONDS:
            logger.error("the Lease is lost: this process ends")
            os._exit(_LOST)


async def _try(kube: Kube, settings: Settings, view: LeaseView) -> bool:
    """Take or renew the Lease; tell whether it is ours."""
    namespace = settings.lease_namespace
    spec = leases.held_by(settings.identity, _LEASE_SECONDS)
    try:
        have = await kube.get("Lease", namespace, LEASE)
        if have is None:
            await kube.create(leases.lease(LEASE, namespace, spec))
            return True
        old, holder = have["spec"], leases.holder_of(have)
        free = view.has_run_out(old, asyncio.get_running_loop().time(), _LEASE_SECONDS)
        if holder and holder != settings.identity and not free:
            return False
        await kube.replace({**have, "kind": "Lease", "spec": {**old, **spec}})
    except ApiError as error:
        logger.info("Lease: %s", error)
        return False
    return True


async def _hand_over(kube: Kube, settings: Settings) -> None:
    have = await kube.get("Lease", settings.lease_namespace, LEASE)
    if have is not None and leases.holder_of(have) == settings.identity:
        spec = {**have["spec"], "holderIdentity": ""}
        await kube.replace({**have, "kind": "Lease", "spec": spec})
