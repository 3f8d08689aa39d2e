"""``GET /run``: how far a run is. Everything else is in the run folder."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

from failback.chaos.cluster.wire import split_address
from failback.chaos.session import Session
from failback.client.remoting.http_server import JSON, HttpThread, Reply

logger = logging.getLogger(__name__)

DEFAULT_PORT: Final = 8088


def progress_of(session: Session) -> dict[str, Any]:
    """Phase, the fault in effect, the brokers that were chosen so far, and seconds after zero."""
    faults = session.faults()
    current = next((fid for fid, each in reversed(faults.items()) if each.in_effect), None)
    began = session.recorder is not None and session.recorder.zero is not None
    seconds = (time.monotonic_ns() - session.zero.mono_ns) / 1e9
    return {
        "phase": "Aborted" if session.stop_reason() else session.stage,
        "fault": current,
        "resolvedTargets": [
            target for record in list(faults.values()) for target in targets_of(record.victims)
        ],
        "t": round(seconds, 3) if began else None,
    }


def targets_of(victims: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Brokers among a fault's victims, in the names of a ChaosExperiment's status."""
    return [
        {
            "pair": victim["pair"],
            "member": str(victim["member"]),
            "brokerId": victim["broker_id"],
            "address": victim["address"],
            "pod": victim["pod"],
        }
        for victim in victims
        if "pod" in victim
    ]


@contextlib.contextmanager
def serve_progress(session: Session, address: str) -> Iterator[None]:
    """Answer ``GET /run`` at ``host:port`` from a thread; a port that is taken is only logged."""

    def answer(_method: str) -> Reply:
        return Reply(HTTPStatus.OK, json.dumps(progress_of(session)).encode(), JSON)

    try:
        server = HttpThread({"/run": answer}, *split_address(address))
    except OSError as error:
        logger.warning("no progress at %s: %s", address, error)
        yield
        return
    try:
        yield
    finally:
        server.close()
