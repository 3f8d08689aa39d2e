"""A disk that gets full while messages come: the real 4.9.7 beside ours, asked the same."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import ResponseCode
from tests.support.brokers.full_disk import Peer, small_disk
from tests.support.brokers.replica_lab import eventually
from tests.support.java.apache import Broker, Engine, server_home

LOG_FILE = 4 << 20


class Outcome(NamedTuple):
    """What became of each thing that was asked."""

    refusal: int | None
    """Code of the answer to the first send without room; None: it got none."""
    pulls: bool
    """Whether every acknowledged message could be pulled while the disk was full."""
    commits: bool
    lives: bool
    takes_again: bool
    """Whether messages are taken within 10 s of there being room."""
    kept: bool
    """Whether everything acknowledged is there in the end."""


async def _has_all(peer: Peer) -> bool:
    """Whether all that was acknowledged can be pulled; a Java broker dispatches later."""
    try:
        await eventually(
            peer.pull_all, lambda found: set(peer.acknowledged) <= set(found), "all", seconds=5
        )
    except AssertionError:
        return False
    return True


async def outcome_of(engine: Engine, folder: Path) -> Outcome:
    with small_disk(folder / "disk") as disk:
        store = disk.path / "store"
        broker = Broker(
            engine,
            folder,
            "127.0.0.1:9",  # nobody is there: clients know the address
            settings={
                "storePathRootDir": store,
                "storePathCommitLog": store / "commitlog",
                "mappedFileSizeCommitLog": LOG_FILE,
                "mappedFileSizeConsumeQueue": 60_000,
                "maxHashSlotNum": 1000,
                "maxIndexNum": 4000,
            },
        )
        broker.start()
        try:
            async with RemotingClient() as client, AdminClient([]) as admin:
                peer = Peer(client, broker.address)
                for _ in range(20):
                    assert (await peer.send()).code == 0
                disk.fill(left_bytes=1 << 20)
                refusal = await peer.send_until_refused()
                pulls = await _has_all(peer)
                commits = await peer.commit(admin, 7)
                lives = broker.process.alive
                disk.make_room()
                try:
                    await peer.seconds_until_taken(10)
                    takes_again = True
                except AssertionError:
                    takes_again = False
                kept = await _has_all(peer)
        finally:
            broker.process.dispose()
    code = None if isinstance(refusal, Exception) else refusal.code
    return Outcome(code, pulls, commits, lives, takes_again, kept)


async def test_ours_refuses_with_a_reason_and_serves_everything_else(tmp_path: Path) -> None:
    found = await outcome_of("failback", tmp_path)
    assert found == Outcome(ResponseCode.SERVICE_NOT_AVAILABLE, True, True, True, True, True)


@pytest.mark.soak
async def test_the_real_one_leaves_the_sender_without_an_answer(tmp_path: Path) -> None:
    server_home()
    found = await outcome_of("apache", tmp_path)
    # Where its own check of the disk comes before the write that fails, there is an answer.
    assert found.refusal in (None, ResponseCode.SERVICE_NOT_AVAILABLE)
    # Seen each time: what it acknowledges afterwards is not handed out, nor after a restart.
    others = found._replace(refusal=None, kept=False)
    assert others == Outcome(None, True, True, True, True, False)
