"""Leader election by a Lease: of several operators one works, the others wait.

A leader that can't renew its Lease ends its process at once, before another may take over. It can't
know how much of its work is under way. A timer of the interpreter ends it, in a thread of its own
that needs neither the event loop nor the interpreter's lock. Clocks of two machines are never
compared: a Lease has run out when an operator has seen it unchanged for as long as it lasts.
A renewal counts from the moment at which it was sent, for the API server may have taken it then.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from failback.kube import leases
from failback.kube.asynchronous import Kube
from failback.kube.errors import ApiError
from failback.kube.leases import LeaseView
from failback.kube.resources import Object
from failback.operator.settings import Settings

logger = logging.getLogger(__name__)

_LEASE_SECONDS: Final = 15
_LEADING_SECONDS: Final = 12.0
"""Behind the last renewal the process ends; the rest of the Lease is for late timers."""
_RENEW_SECONDS: Final = 4.0
_ATTEMPT_SECONDS: Final = 4.0
"""A renewal that takes longer is given up: the next one may be answered."""
_RETRY_SECONDS: Final = 2.0


class Ender(Protocol):
    """What ends a process that may lead no longer."""

    def end_within(self, seconds: float) -> None:
        """End the process so many seconds from now; replaces an earlier order."""

    def call_off(self) -> None:
        """Take the order back."""


class ProcessEnder:
    """Ends this process with exit code 1, and shows on stderr where each thread stood."""

    def end_within(self, seconds: float) -> None:
        """End the process so many seconds from now; replaces an earlier order."""
        faulthandler.dump_traceback_later(max(seconds, 0.001), exit=True)

    def call_off(self) -> None:
        """Take the order back."""
        faulthandler.cancel_dump_traceback_later()


@asynccontextmanager
async def lead(
    kube: Kube, settings: Settings, stop: asyncio.Event, ender: Ender | None = None
) -> AsyncIterator[None]:
    """Wait for the Lease, hold it while the block runs, hand it over at its end.

    Args:
        stop: Ends the waiting; the block then runs without the Lease.
        ender: Unset: this process is ended.
    """
    ender = ProcessEnder() if ender is None else ender
    election = _Election(kube, settings, asyncio.get_running_loop())
    while not stop.is_set() and election.left() <= 0:
        if await election.renew(_LEADING_SECONDS):
            continue
        with suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_SECONDS):
                await stop.wait()
    if stop.is_set():
        yield
        return
    ender.end_within(election.left())
    logger.info("%s leads", settings.identity)
    renewal = asyncio.create_task(_keep(election, ender))
    try:
        yield
    finally:
        renewal.cancel()
        with suppress(asyncio.CancelledError):
            await renewal
        ender.call_off()
        with suppress(ApiError):
            await election.hand_over()


async def _keep(election: _Election, ender: Ender) -> None:
    pause = _RENEW_SECONDS
    while True:
        await asyncio.sleep(pause)
        if await election.renew(_ATTEMPT_SECONDS):
            ender.end_within(election.left())
            pause = _RENEW_SECONDS
        else:
            logger.error("the Lease is lost in %.1f s: this process ends then", election.left())
            pause = _RETRY_SECONDS


@dataclass(slots=True)
class _Election:
    """One operator's part in it."""

    kube: Kube
    settings: Settings
    loop: asyncio.AbstractEventLoop
    view: LeaseView = field(default_factory=LeaseView)
    held: Object | None = None
    """The Lease as the API server has taken it from us last."""
    ends_at: float = float("-inf")
    """Time of the loop until which this operator may lead."""

    def left(self) -> float:
        """Return for how many seconds more this operator may lead."""
        return self.ends_at - self.loop.time()

    async def renew(self, seconds: float) -> bool:
        """Take or renew the Lease within so many seconds; tell whether it is ours."""
        try:
            async with asyncio.timeout(seconds):
                return await self._renew()
        except TimeoutError:
            logger.info("Lease: no answer within %g s", seconds)
        except ApiError as error:
            logger.info("Lease: %s", error)
        self.held = None
        return False

    async def _renew(self) -> bool:
        namespace, identity = self.settings.lease_namespace, self.settings.identity
        spec = leases.held_by(identity, _LEASE_SECONDS)
        have = self.held or await self.kube.get("Lease", namespace, self.settings.lease_name)
        if have is None:
            sent_at = self.loop.time()
            done = await self.kube.create(leases.lease(self.settings.lease_name, namespace, spec))
        else:
            old, holder = have["spec"], leases.holder_of(have)
            free = self.view.has_run_out(old, self.loop.time(), _LEASE_SECONDS)
            if holder and holder != identity and not free:
                return False
            sent_at = self.loop.time()
            done = await self.kube.replace({**have, "kind": "Lease", "spec": {**old, **spec}})
        self.held, self.ends_at = done, sent_at + _LEADING_SECONDS
        return True

    async def hand_over(self) -> None:
        """Set the Lease free, if it is ours."""
        have = await self.kube.get("Lease", self.settings.lease_namespace, self.settings.lease_name)
        if have is not None and leases.holder_of(have) == self.settings.identity:
            spec = {**have["spec"], "holderIdentity": ""}
            await self.kube.replace({**have, "kind": "Lease", "spec": spec})
