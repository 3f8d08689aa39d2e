"""The command that stores a consumer offset on a master, written in one place. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from failback.common.text import typed


def reset_command(
    group: str,
    topic: str,
    broker: str,
    queue: int,
    offset: int | None,
    *,
    held: int | None = None,
    namesrv: Sequence[str] = (),
) -> str | None:
    """What to type so that the group goes on at ``offset``.

    Args:
        group: Its name.
        topic: Its name.
        broker: Its name.
        queue: The queue's id.
        offset: The safe one; ``None``: nobody knows it, and there is no command.
        held: What the master has; where it has as much there is nothing to set.
        namesrv: Where to ask, if it is not what the command finds by itself.
    """
    if offset is None or (held is not None and held >= offset):
        return None
    words = [
        *("failback", "admin", "resetOffset", "--group", group, "--topic", topic),
        *("--broker", broker, "--queue", str(queue), "--offset", str(offset)),
    ]
    if namesrv:
        words += ["--namesrv", ";".join(namesrv)]
    return typed(*words)
