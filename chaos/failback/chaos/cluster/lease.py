"""At most one experiment per cluster, and what it holds there ends when its harness is gone.

:class:`Lease` keeps other runs away. :class:`Renewal` keeps holds and stops of brokers alive while
the harness lives. A harness outside of the cluster may be gone for good, so they end by themselves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, Protocol

from failback.chaos.errors import TargetError


class Lease(Protocol):
    """Held by one run; kept when that run could not be healed."""

    def take(self, run_dir: Path, *, healing: bool = False) -> None:
        """Take the lease for one run.

        Raises:
            GuardRefused: Another run is under way.
            NotHealed: The last run left something behind, and this one is not its heal.
        """

    def left_in(self) -> str:
        """The folder of the run that left something behind; empty if none did."""

    def vouch(self, digests: Collection[str]) -> None:
        """Keep, on the cluster's side, the sha256 of files that the run saved for its undo."""

    def vouched(self) -> Collection[str]:
        """What :meth:`vouch` kept for the run that :meth:`left_in` names."""

    def require(self) -> None:
        """Raise ``GuardRefused`` when it is not ours any more."""

    def give_back(self, *, healed: bool) -> None:
        """End the lease. A run that is not healed leaves its name, so that no second one starts."""


logger = logging.getLogger(__name__)

RENEW_SECONDS: Final = 30.0


class Renewal:
    """The pods to renew, from a thread that begins with the first."""

    def __init__(self, renew: Callable[[str], None], seconds: float = RENEW_SECONDS) -> None:
        """``renew`` gets a pod's name; it may raise :class:`TargetError`."""
        self._renew = renew
        self._seconds = seconds
        self._pods: set[str] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, pod: str) -> None:
        self._pods.add(pod)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="renew-holds", daemon=True)
            self._thread.start()

    def drop(self, pod: str) -> None:
        self._pods.discard(pod)

    def close(self) -> None:
        """End the thread: what is held ends by itself, as when this process is killed."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while not self._stop.wait(self._seconds):
            for pod in sorted(self._pods):
                try:
                    self._renew(pod)
                except TargetError as error:  # its container may be between two starts
                    logger.debug("not renewed: %s", error)
