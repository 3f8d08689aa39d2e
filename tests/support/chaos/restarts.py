"""Waits until a member of a target runs as another process."""

from __future__ import annotations

import contextlib
import time

from failback.chaos.cluster.target import Deadline, Target
from failback.chaos.cluster.view import Member, ProcessIdentity
from failback.chaos.errors import TargetError

LOOK_SECONDS = 0.1


def await_another(
    target: Target, member: Member, previous: ProcessIdentity, deadline: Deadline
) -> ProcessIdentity:
    """Look until another process of this member answers code 28.

    Raises:
        TargetError: None did until the deadline.
    """
    while True:
        with contextlib.suppress(TargetError):
            found = target.identity(member)
            if not found.same(previous) and found.boot_ms is not None:
                return found
        if deadline.over():
            state = target.pod_state(member.pod)
            raise TargetError(f"restart of {member.pod}", f"it is {state} at the deadline")
        time.sleep(LOOK_SECONDS)
