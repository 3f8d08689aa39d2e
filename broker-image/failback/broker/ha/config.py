"""Settings of the HA service, in one value built by the broker's composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from failback.broker.config.config import BrokerConfig
from failback.client.remoting.guarded.tls import Tls
from failback.client.remoting.tls_server import ServerTls

MOST_FRAME_BYTES: Final = 4 * 1024 * 1024
"""Header and body: the read buffer of an Apache slave, which waits for ever for a larger frame."""

FRAME_HEADER_BYTES: Final = 12


def batch_bytes_of(config: BrokerConfig) -> int:
    """Return the largest body of a frame: ``haTransferBatchSize``, as far as all slaves take it."""
    return min(config.ha_transfer_batch_size, MOST_FRAME_BYTES - FRAME_HEADER_BYTES)


@dataclass(frozen=True, slots=True)
class HaConfig:
    """How a broker replicates its commit log. Defaults are MessageStoreConfig's of 4.9.8."""

    role: str
    """``ASYNC_MASTER``, ``SYNC_MASTER`` or ``SLAVE``. Only a slave dials; every role listens."""

    listen_host: str
    listen_port: int
    """``listenPort + 1`` in 4.9; 0 lets the system choose (tests)."""

    mapped_file_bytes: int
    """Size of a commit log file. Must be equal on both sides of a pair."""

    master_address: str | None = None
    """``host:port`` of the master's HA port, when configured (``haMasterAddress``)."""

    heartbeat_ms: float = 5_000
    """``haSendHeartbeatInterval``: a master's idle time before a heartbeat, and the longest time
    between two reports of a slave."""

    housekeeping_ms: float = 20_000
    """``haHousekeepingInterval``: a slave silent for this long is disconnected."""

    reconnect_ms: float = 5_000
    """HAService.HAClient waits this long when it has no address or could not connect."""

    connect_timeout_ms: float = 3_000

    batch_bytes: int = 32_768
    """``haTransferBatchSize``: the largest frame body a master sends."""

    fallbehind_max: int = 268_435_456
    """``haSlaveFallbehindMax``: a slave further behind than this does not count for SYNC_MASTER."""

    async_transfer_delay_ms: float = 2
    """How long an ASYNC_MASTER gathers appends into one transfer. The original polls every 100 ms;
    0 sends with every commit, which costs one system call per commit on the send path."""

    is_guarded: bool = False
    """Compare logs, on both sides. A master refuses every report of more than it has, or has sent.
    The original takes the first one unchecked, so that a stray peer makes SYNC_MASTER's
    acknowledgements vacuous (apache/rocketmq#3015). A slave takes nothing that does not continue
    its log; the original appends the bytes of another log to its own."""

    may_connect: Callable[[str], bool] = lambda _host: True
    """Whether a peer at this address may use the HA port (``failbackHaFrom``)."""

    tls: ServerTls | None = None
    """Of the HA port."""

    dial_tls: Callable[[], Tls | None] = lambda: None
    """Of a slave's next connection to its master; ``None``: it is plain."""

    @classmethod
    def of(cls, config: BrokerConfig) -> HaConfig:
        """Take the HA part of ``config``, every interval scaled by its time scale."""
        scale = config.time_scale
        address = config.ha_master_address.strip()
        return cls(
            role=config.broker_role,
            may_connect=config.may_replicate,
            listen_host=config.failback_bind_address,
            listen_port=config.listen_port + 1,
            mapped_file_bytes=config.mapped_file_size_commit_log,
            # HAService takes the key only when it is at least as long as "1.1:80" would be.
            master_address=address if len(address) >= 6 else None,
            heartbeat_ms=scale.ms(config.ha_send_heartbeat_interval),
            housekeeping_ms=scale.ms(config.ha_housekeeping_interval),
            reconnect_ms=scale.ms(5_000),
            connect_timeout_ms=scale.ms(3_000),
            batch_bytes=batch_bytes_of(config),
            fallbehind_max=config.ha_slave_fallbehind_max,
            is_guarded=config.failback_guard_replication,
        )
