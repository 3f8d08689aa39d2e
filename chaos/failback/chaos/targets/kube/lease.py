"""The Lease object ``failback-<cluster>-chaos``: one experiment at a time on a cluster.

The holder renews it from a thread. A holder that vanished is taken for gone when its lease has run
out; what it left behind stands in the annotation ``failback.dev/run-dir``, and as long as that
folder has something open, only its heal gets the lease.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from failback.chaos.errors import GuardRefused, NotHealed, TargetError
from failback.chaos.run_folder.run_folder import what_is_left
from failback.chaos.targets.kube.api import KubeApi
from failback.common.text import typed
from failback.kube import leases
from failback.kube.resources import GROUP, VERSION

logger = logging.getLogger(__name__)

LEASE_SECONDS: Final = 30
RENEW_SECONDS: Final = 8.0
LOST_SECONDS: Final = LEASE_SECONDS - RENEW_SECONDS
"""Without a renewal for so long the holder stops: another one takes the lease later."""
LOOK_SECONDS: Final = 2.0
RUN_DIR: Final = "failback.dev/run-dir"
SAVED: Final = "failback.dev/saved-files"
"""sha256 of the files that the run saved, one after the other."""
_NOT_HEALED: Final = " (not healed)"
_TRIES: Final = 5


class KubeLease:
    """One cluster's Lease."""

    def __init__(self, api: KubeApi, cluster: str, holder: str = "") -> None:
        self.name = f"failback-{cluster}-chaos"
        self._api = api
        self._cluster = cluster
        self._holder = holder or f"{os.uname().nodename}-{os.getpid()}"
        self._run_dir = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lost = ""
        self._renewed_at = 0.0

    def take(self, run_dir: Path, *, healing: bool = False) -> None:
        self._run_dir = str(run_dir)
        for _ in range(_TRIES):
            found = self._api.lease(self.name)
            if found is None:
                begun = time.monotonic()
                written = self._api.create_lease(self._fresh())
            else:
                self._refuse_if_taken(found, run_dir, healing=healing)
                begun = time.monotonic()
                written = self._api.replace_lease(self._ours(found))
            if written:
                self._renewed_at = begun
                self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
                self._thread.start()
                return
        raise GuardRefused("OneExperiment", f"lease {self.name} is being fought over")

    def require(self) -> None:
        if not self._lost and time.monotonic() - self._renewed_at > LOST_SECONDS:
            self._lost = f"it could not be renewed for {LOST_SECONDS:g} s"
        if self._lost:
            raise GuardRefused("OneExperiment", f"lease {self.name}: {self._lost}")

    def give_back(self, *, healed: bool) -> None:
        self._stop.set()
        if self._thread is None:
            return
        self._thread.join(RENEW_SECONDS)
        for _ in range(_TRIES):  # the thread may be writing its last renewal
            found = self._api.lease(self.name)
            if found is None or leases.holder_of(found) != self._holder:
                return
            annotations = found["metadata"].setdefault("annotations", {})
            if healed:
                annotations.pop(RUN_DIR, None)
                annotations.pop(SAVED, None)
            found["spec"]["holderIdentity"] = "" if healed else self._holder + _NOT_HEALED
            found["spec"]["renewTime"] = leases.stamp()
            if self._api.replace_lease(found):
                return
        logger.warning("lease %s was not given back: it is being fought over", self.name)

    def left_in(self) -> str:
        return _annotation(self._api.lease(self.name), RUN_DIR)

    def vouch(self, digests: Collection[str]) -> None:
        for _ in range(_TRIES):  # the thread may be writing a renewal
            found = self._api.lease(self.name)
            if found is None or leases.holder_of(found) != self._holder:
                break
            known = {*_annotation(found, SAVED).split(), *digests}
            found["metadata"].setdefault("annotations", {})[SAVED] = " ".join(sorted(known))
            if self._api.replace_lease(found):
                return
        raise GuardRefused("OneExperiment", f"lease {self.name}: it is held by another run now")

    def vouched(self) -> Collection[str]:
        return _annotation(self._api.lease(self.name), SAVED).split()

    # --- helpers ---------------------------------------------------------------------------------

    def _refuse_if_taken(self, found: dict[str, Any], run_dir: Path, *, healing: bool) -> None:
        spec = found["spec"]
        holder = leases.holder_of(found)
        if holder and not self._is_gone(spec):
            raise GuardRefused("OneExperiment", f"{self._cluster} is in use by {holder}")
        left_in = _annotation(found, RUN_DIR)
        if not left_in or healing or Path(left_in) == run_dir:
            return
        left = (
            what_is_left(Path(left_in))
            if Path(left_in).exists()
            else [f"{left_in} cannot be seen from here"]
        )
        if left:
            raise NotHealed(left, typed("failback", "experiment", "heal", left_in))

    def _is_gone(self, spec: Mapping[str, Any]) -> bool:
        """Tell whether the holder is gone: no renewal comes for as long as its lease lasts.

        The lease's own times are another machine's, whose clock may be late.
        """
        if not leases.has_run_out(spec, time.time(), LEASE_SECONDS):
            return False
        has_ended = leases.holder_of({"spec": spec}).endswith(_NOT_HEALED)
        if has_ended or leases.has_run_out(spec, time.time() - leases.SKEW_SECONDS, LEASE_SECONDS):
            return True
        logger.info("lease %s: waiting %d s for a sign of its holder", self.name, LEASE_SECONDS)
        ends = time.monotonic() + float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)
        while time.monotonic() < ends:
            time.sleep(LOOK_SECONDS)
            now = (self._api.lease(self.name) or {}).get("spec") or {}
            if not now.get("holderIdentity"):
                return True
            if now.get("renewTime") != spec.get("renewTime"):
                return False
        return True

    def _fresh(self) -> dict[str, Any]:
        labels = {
            "app.kubernetes.io/name": "failback",
            "app.kubernetes.io/component": "chaos",
            "failback.dev/cluster": self._cluster,
        }
        spec = {"leaseTransitions": 0}
        body = leases.lease(self.name, self._api.namespace, spec, labels=labels)
        cluster = self._api.cluster(self._cluster)
        if cluster is not None:
            body["metadata"]["ownerReferences"] = [
                {
                    "apiVersion": f"{GROUP}/{VERSION}",
                    "kind": "BrokerCluster",
                    "name": self._cluster,
                    "uid": cluster["metadata"]["uid"],
                }
            ]
        return self._ours(body)

    def _ours(self, body: dict[str, Any]) -> dict[str, Any]:
        held = leases.held_by(self._holder, LEASE_SECONDS)
        annotations = body["metadata"].setdefault("annotations", {})
        if annotations.get(RUN_DIR) != self._run_dir:
            annotations.pop(SAVED, None)
        annotations[RUN_DIR] = self._run_dir
        body["spec"] = {
            **held,
            "acquireTime": held["renewTime"],
            "leaseTransitions": int(body["spec"].get("leaseTransitions") or 0) + 1,
        }
        return body

    def _renew(self) -> None:
        while not self._stop.wait(RENEW_SECONDS):
            try:
                found = self._api.lease(self.name)
                if found is None or leases.holder_of(found) != self._holder:
                    who = leases.holder_of(found) or "nobody"
                    self._lost = f"it is held by {who} now"
                    return
                found["spec"]["renewTime"] = leases.stamp()
                begun = time.monotonic()
                if self._api.replace_lease(found):
                    self._renewed_at = begun
            except TargetError as error:
                logger.warning("lease %s was not renewed: %s", self.name, error)
            if time.monotonic() - self._renewed_at > LOST_SECONDS:
                return


def _annotation(found: Mapping[str, Any] | None, key: str) -> str:
    return str(((found or {}).get("metadata", {}).get("annotations") or {}).get(key) or "")
