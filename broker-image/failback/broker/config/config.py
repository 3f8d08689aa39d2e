"""broker.conf: the settings of one broker, their defaults, and how a live change is applied.

The file is a Java properties file with RocketMQ 4.9's key names. Keys that are unknown here are
kept, shown by GET_BROKER_CONFIG and written back, as the original does. Built once in
``__main__``; the controller hands every component its part.

Source: BrokerConfig, MessageStoreConfig, NettyServerConfig and Configuration, apache/rocketmq
4.9.8.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from failback.broker.config.config_checks import check_together, refuse_dangerous, refuse_late
from failback.broker.config.config_file import (
    in_one_line,
    means_default,
    parse,
    present_copy,
    to_text,
    without_effect,
)
from failback.broker.config.time_scale import TimeScale
from failback.client.remoting.addresses import (
    address_to_bind,
    addresses_of,
    first_local_address,
    is_everywhere,
)
from failback.client.remoting.guarded.own_access import access_folder
from failback.client.remoting.guarded.tls_properties import BY_FILE, MODES
from failback.common.text import why
from failback.protocol.calls import write_properties
from failback.protocol.errors import ConfigError
from failback.protocol.names import (
    NameRefused,
    check_address,
    check_broker_name,
    check_cluster_name,
)
from failback.protocol.properties import properties_of

logger = logging.getLogger(__name__)

ROLES: Final = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")
FLUSH_TYPES: Final = ("ASYNC_FLUSH", "SYNC_FLUSH")
_IRREGULAR_KEYS: Final = {
    "broker_ip1": "brokerIP1",
    "broker_ip2": "brokerIP2",
    "check_crc_on_recover": "checkCRCOnRecover",
    "use_tls": "useTLS",
}


_VARIABLES: Final = {
    "failbackHttpPort": "FAILBACK_HTTP_PORT",
    "failbackDrainSeconds": "FAILBACK_DRAIN_SECONDS",
    "failbackRules": "FAILBACK_RULES",
}


def _choice(default: str, choices: tuple[str, ...]) -> Any:
    return field(default=default, metadata={"choices": choices})


def _ranged(default: int, low: int, high: int = 2**63 - 1) -> Any:
    return field(default=default, metadata={"range": (low, high)})


@dataclass(slots=True)
class BrokerConfig:
    """Live settings under Python names; :meth:`key_of` gives the name in the file.

    Sizes are bytes, intervals milliseconds before :attr:`failback_time_scale`. Code 25 changes
    fields of the one instance all processors share, so they read it per request.
    """

    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = ""
    """Shared by a master and its slaves. Empty: the host name."""
    broker_id: int = _ranged(0, -(2**31))
    """0 = master, forced for masters; a slave needs a number above 0."""
    broker_role: str = _choice("ASYNC_MASTER", ROLES)
    broker_ip1: str = ""
    """Where clients reach this broker, and the host in every message id. Empty: first address."""
    broker_ip2: str = ""
    """Where slaves reach the HA port. Empty: :attr:`broker_ip1`."""
    listen_port: int = _ranged(10911, 3, 65534)
    """Also taken: two below for requests without pulls, one above for replication."""
    ha_listen_port: int = 0
    """Shown only: 4.9 always uses ``listenPort`` + 1."""
    namesrv_addr: str = ""
    broker_permission: int = _ranged(6, 0, 7)
    default_topic_queue_nums: int = _ranged(8, 1, 65535)
    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    reject_transaction_message: bool = False
    start_accept_send_request_time_stamp: int = 0
    slave_read_enable: bool = False
    long_polling_enable: bool = True
    short_polling_time_mills: int = _ranged(1000, 1)
    notify_consumer_ids_changed_enable: bool = True
    disable_consume_if_consumer_read_slowly: bool = False
    consumer_fallbehind_threshold: int = 16 * 1024**3
    enable_property_filter: bool = False
    """Whether consumers may filter by SQL92 expressions."""
    store_reply_message_enable: bool = True
    transfer_msg_by_heap: bool = True
    commercial_enable: bool = True
    acl_enable: bool = False
    filter_server_nums: int = 0
    """Shown only: a tool that exports settings wants it."""
    use_tls: bool = False
    """Whether this broker's own connections speak TLS, also without ``tls.enable``."""
    register_name_server_period: int = _ranged(30_000, 1)
    """Clamped to 10 000…60 000 before scaling."""
    register_broker_timeout_mills: int = _ranged(6000, 1)
    force_register: bool = True
    compressed_register: bool = False
    flush_consumer_offset_interval: int = _ranged(5000, 1)
    flush_delay_offset_interval: int = _ranged(10_000, 1)
    config_black_list: str = "configBlackList;brokerConfigPath"
    broker_config_path: str = ""
    rocketmq_home: str = ""
    send_thread_pool_queue_capacity: int = 10_000
    pull_thread_pool_queue_capacity: int = 100_000
    query_thread_pool_queue_capacity: int = 20_000
    end_transaction_pool_queue_capacity: int = 100_000
    transaction_time_out: int = 6000
    transaction_check_max: int = 15
    transaction_check_interval: int = 60_000
    server_channel_max_idle_time_seconds: int = _ranged(120, 1)

    store_path_root_dir: str = ""
    """Empty: ``$HOME/store``."""
    store_path_commit_log: str = ""
    """Empty: ``commitlog`` under the root."""
    mapped_file_size_commit_log: int = _ranged(1024**3, 4096, 2**31 - 1)
    mapped_file_size_consume_queue: int = _ranged(6_000_000, 20, 2**31 - 1)
    enable_consume_queue_ext: bool = False
    max_message_size: int = _ranged(4 * 1024**2, 1, 2**31 - 1)
    flush_disk_type: str = _choice("ASYNC_FLUSH", FLUSH_TYPES)
    flush_interval_commit_log: int = _ranged(500, 1)
    flush_commit_log_timed: bool = True
    flush_commit_log_least_pages: int = _ranged(4, 0)
    flush_commit_log_thorough_interval: int = _ranged(10_000, 1)
    flush_interval_consume_queue: int = _ranged(1000, 1)
    flush_consume_queue_least_pages: int = _ranged(2, 0)
    flush_consume_queue_thorough_interval: int = _ranged(60_000, 1)
    commit_interval_commit_log: int = _ranged(200, 1)
    """This and the next two are settings of a buffer pool that this broker does not have."""
    commit_commit_log_least_pages: int = _ranged(4, 0)
    commit_commit_log_thorough_interval: int = _ranged(200, 1)
    sync_flush_timeout: int = _ranged(5000, 1)
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    use_reentrant_lock_when_put_message: bool = True
    """Shown only: one thread appends."""
    os_page_cache_busy_time_out_mills: int = 1000
    check_crc_on_recover: bool = True
    message_index_enable: bool = True
    message_index_safe: bool = False
    max_hash_slot_num: int = _ranged(5_000_000, 1, 2**31 - 1)
    max_index_num: int = _ranged(20_000_000, 2, 2**31 - 1)
    max_msgs_num_batch: int = 64
    default_query_max_num: int = 32
    delete_when: str = "04"
    file_reserved_time: int = _ranged(72, 0)
    disk_max_used_space_ratio: int = _ranged(75, 1, 100)
    clean_resource_interval: int = _ranged(10_000, 1)
    delete_commit_log_files_interval: int = 100
    destroy_maped_file_interval_forcibly: int = 120_000
    clean_file_forcibly_enable: bool = True
    max_transfer_bytes_on_message_in_memory: int = _ranged(262_144, 0)
    max_transfer_count_on_message_in_memory: int = _ranged(32, 0)
    max_transfer_bytes_on_message_in_disk: int = _ranged(65_536, 0)
    max_transfer_count_on_message_in_disk: int = _ranged(8, 0)
    access_message_in_memory_max_ratio: int = _ranged(40, 0, 100)
    offset_check_in_slave: bool = False
    ha_master_address: str = ""
    ha_send_heartbeat_interval: int = _ranged(5000, 1)
    ha_housekeeping_interval: int = _ranged(20_000, 1)
    ha_transfer_batch_size: int = _ranged(32_768, 1, 4 * 1024**2)
    ha_slave_fallbehind_max: int = _ranged(268_435_456, 0)
    slave_timeout: int = _ranged(3000, 1)
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    duplication_enable: bool = False

    failback_time_scale: float = 1.0
    """Ours. Multiplies every interval; see :class:`TimeScale`."""
    failback_bind_address: str = ""
    """Ours. The address the ports are opened on. Empty: :attr:`broker_ip1` where that is an address
    of this machine, else all, as 4.9 does in any case."""
    failback_http_port: int = _ranged(8088, 0, 65535)
    """Ours. Health and metrics; 0 = off. Unset: environment ``FAILBACK_HTTP_PORT``, then 8088 where
    that is free."""
    failback_drain_seconds: float = 10.0
    """Ours. How long a stop waits for connected slaves to hold the whole log."""
    failback_rules: str = _choice("compat", ("compat", "guarded"))
    """Ours. ``compat`` = exactly 4.9.8. ``guarded`` switches on every ``failbackGuard...`` that is
    not set. Unset: environment ``FAILBACK_RULES``."""
    failback_guard_offset_file: bool = False
    """Ours. ``consumerOffset.json`` is synced to disk and replaced in one step."""
    failback_guard_slave_offsets: bool = False
    """Ours. A slave keeps consumer offsets that are ahead of what its restarted master says."""
    failback_guard_returned_offsets: bool = False
    """Ours. A starting master takes the consumer offsets in which its slaves are ahead."""
    failback_guard_consumer_list: bool = False
    """Ours. No list of a group's members before all of them could have sent a heartbeat."""
    failback_guard_ask_members: bool = False
    """Ours. A slave whose master is down asks its members how far they are, and keeps that."""
    failback_guard_auto_create: bool = False
    """Ours. A refused creation leaves the default topic's inherit bit as it is."""
    failback_guard_replication: bool = False
    """Ours. A slave whose log is not the beginning of its master's does not replicate. A master
    refuses a slave that reports more than it has, or has sent."""

    failback_admin_from: str = ""
    """Ours. Addresses and networks, joined by ``;``, that may change our settings by code 25. This
    machine may in any case."""
    failback_ha_from: str = ""
    """Ours. Addresses and networks, joined by ``;``, from which slaves may replicate; empty: any.
    This machine may in any case."""
    failback_access_folder: str = ""
    """Ours. Folder of ``plain_acl.yml``, of ``acl`` with more such files, of ``tools.yml`` and of
    ``tls.properties``. Empty: that of broker.conf."""
    failback_acl_mode: str = _choice("enforce", ("off", "warn", "enforce"))
    """Ours. What ``aclEnable`` does: ``warn`` counts what ``enforce`` refuses."""
    failback_tls_mode: str = _choice(BY_FILE, (BY_FILE, *MODES))
    """Ours. Whether peers may speak TLS, or must; ``file``: as ``tls.properties`` says."""
    failback_members: str = ""
    """Ours. Addresses of the pair's members, ``host:port`` joined by ``;``. A returned master takes
    offsets from these alone."""
    failback_max_topics: int = _ranged(50_000, 1)
    """Ours, as all that follow: bounds of what peers may make this broker keep."""
    failback_max_groups: int = _ranged(50_000, 1)
    """Of each table: groups, groups with members, groups of producers."""
    failback_max_groups_per_connection: int = _ranged(1_000, 1)
    """Groups of which one client is a member, consumer and producer groups together."""
    failback_max_offsets: int = _ranged(1_000_000, 1)
    failback_max_connections: int = _ranged(10_000, 1)
    failback_max_connections_per_address: int = _ranged(2_000, 1)
    failback_max_unfinished_bytes: int = _ranged(256 * 1024**2, 16 * 1024**2)
    failback_max_unread_bytes: int = _ranged(64 * 1024**2, 1024**2)
    failback_max_unread_bytes_in_all: int = _ranged(512 * 1024**2, 1024**2)
    failback_max_held_pulls: int = _ranged(100_000, 1)
    failback_max_held_pulls_per_connection: int = _ranged(10_000, 1)
    failback_max_suspend_millis: int = _ranged(120_000, 1)
    """A pull that asks to be held for longer is held so long; not scaled, as what clients ask."""
    failback_max_tasks: int = _ranged(10_000, 1)
    failback_max_tasks_per_connection: int = _ranged(1_000, 1)
    failback_max_calls_per_client: int = _ranged(100, 1)

    file: Path | None = field(default=None, metadata={"own": True})
    mounted: Path | None = field(default=None, metadata={"own": True})
    """A copy of the file whose changes are taken while the broker runs."""
    unknown: dict[str, str] = field(default_factory=dict, metadata={"own": True})
    """Keys of the file that no field takes, as written."""
    lines: dict[str, int] = field(default_factory=dict, metadata={"own": True})
    """The line of each key in the file, from 1."""
    given: frozenset[str] = field(default=frozenset(), metadata={"own": True})
    """Keys that the file, the environment or a request set; all others have their defaults."""

    @staticmethod
    def key_of(name: str) -> str:
        """Return the spelling in the file of the Python field ``name``."""
        if name in _IRREGULAR_KEYS:
            return _IRREGULAR_KEYS[name]
        first, *rest = name.split("_")
        return first + "".join(word.capitalize() for word in rest)

    @classmethod
    def load(cls, file: Path, environment: Mapping[str, str] = os.environ) -> BrokerConfig:
        """Read ``file``.

        Raises:
            ConfigError: The file can't be read, or a value does not fit its key: names its line.
        """
        try:
            read = properties_of(present_copy(file).read_bytes(), file)
        except OSError as error:
            raise ConfigError(str(file), why(error)) from error
        try:
            config = cls.from_properties(read.values, file=file, environment=environment)
        except ConfigError as error:
            error.line = read.lines.get(error.field)
            raise
        config.lines = read.lines
        for remark in read.remarks:
            logger.warning("%s: %s", file, remark)
        for key in ("brokerIP1", "brokerIP2"):
            if is_everywhere(getattr(config, _FIELDS[key])):
                logger.warning("%s: %s is told to others, who reach nobody by 0.0.0.0", file, key)
        defaults = {key: to_text(declared.default) for key, declared in _BY_KEY.items()}
        defaults["haListenPort"] = to_text(config.ha_listen_port)
        if ignored := without_effect(read.values, config.to_properties(), defaults):
            logger.warning("%s: without effect here: %s", file, in_one_line(ignored, read.lines))
        return config

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, str],
        *,
        file: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> BrokerConfig:
        """Build from parsed ``properties``; ``environment`` fills what they leave open.

        Raises:
            ConfigError: A value does not fit its key.
        """
        environment = {} if environment is None else environment
        config = cls(file=file)
        refuse_dangerous(properties, file)
        given = {key: value for key, value in properties.items() if not _is_default(key, value)}
        for key, value in given.items():
            if key in _FIELDS:
                _set(config, key, value, file)
            else:
                config.unknown[key] = value
        config.given = frozenset(given)
        config._fill(environment)
        if not config.is_slave:
            config.broker_id = 0
        check_together(config, file)
        config._check_names(file)
        return config

    def _fill(self, environment: Mapping[str, str]) -> None:
        if not self.namesrv_addr:
            self.namesrv_addr = environment.get("NAMESRV_ADDR", "")
            addresses_of("NAMESRV_ADDR", self.namesrv_addr)
        for key, variable in _VARIABLES.items():
            if key not in self.given and (text := environment.get(variable)):
                _set(self, key, text, None)
                self.given |= {key}
        if self.failback_rules == "guarded":
            for name in GUARDS:
                if self.key_of(name) not in self.given:
                    setattr(self, name, True)
        self.broker_name = self.broker_name or _host_name()
        self.broker_ip1 = self.broker_ip1 or first_local_address()
        self.broker_ip2 = self.broker_ip2 or self.broker_ip1
        self.failback_bind_address = self.failback_bind_address or address_to_bind(self.broker_ip1)
        self.ha_listen_port = self.listen_port + 1
        home = Path(environment.get("HOME") or Path.home())
        root = Path(self.store_path_root_dir or home / "store")
        self.store_path_root_dir = str(root)
        self.store_path_commit_log = self.store_path_commit_log or str(root / "commitlog")
        if self.file is not None:
            self.broker_config_path = str(self.file)
        self.rocketmq_home = self.rocketmq_home or environment.get("ROCKETMQ_HOME", str(home))

    def _check_names(self, file: Path | None) -> None:
        """Refuse what no name server of ours takes in a registration."""
        for key, check, value in (
            ("brokerName", check_broker_name, self.broker_name),
            ("brokerClusterName", check_cluster_name, self.broker_cluster_name),
        ):
            try:
                check(value)
            except NameRefused as error:
                raise ConfigError(key, str(error), file=file) from error
        for member in self.members:
            try:
                check_address("member", member)
            except NameRefused as error:
                raise ConfigError("failbackMembers", str(error), file=file) from error
        for key, value in (
            ("failbackAdminFrom", self.failback_admin_from),
            ("failbackHaFrom", self.failback_ha_from),
        ):
            try:
                self._is_within("127.0.0.1", value)
            except ValueError as error:
                problem = f"must be addresses or networks joined by ';': {error}"
                raise ConfigError(key, problem, file=file) from error

    @property
    def access_folder(self) -> Path | None:
        """The folder of the files of access control; ``None``: no key and no file names one."""
        return access_folder(self.failback_access_folder, self.file)

    def may_administer(self, host: str) -> bool:
        """Tell whether a peer at ``host`` may change what guards and bounds rest on."""
        return self._is_within(host, self.failback_admin_from)

    def may_replicate(self, host: str) -> bool:
        """Tell whether a peer at ``host`` may use the HA port."""
        return not self.failback_ha_from.strip() or self._is_within(host, self.failback_ha_from)

    def _is_within(self, host: str, networks: str) -> bool:
        """Tell whether ``host`` is of this machine or in one of ``networks``."""
        peer = ipaddress.ip_address(host)
        peer = getattr(peer, "ipv4_mapped", None) or peer
        known = [
            ipaddress.ip_network(each.strip(), strict=False)
            for each in networks.split(";")
            if each.strip()
        ]
        own = (self.failback_bind_address, self.broker_ip1)
        return peer.is_loopback or str(peer) in own or any(peer in each for each in known)

    @property
    def is_slave(self) -> bool:
        return self.broker_role == "SLAVE"

    @property
    def members(self) -> tuple[str, ...]:
        """``failbackMembers`` as a list; empty where it is not set."""
        return tuple(each.strip() for each in self.failback_members.split(";") if each.strip())

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Addresses of all name servers, as given, without blanks or repeats."""
        return addresses_of("namesrvAddr", self.namesrv_addr)

    @property
    def time_scale(self) -> TimeScale:
        return TimeScale(self.failback_time_scale)

    @property
    def register_period_ms(self) -> int:
        return max(10_000, min(self.register_name_server_period, 60_000))

    def to_properties(self) -> dict[str, str]:
        """Return every setting as text: known ones in alphabetical order, then unknown ones."""
        known = {key: to_text(getattr(self, name)) for key, name in _FIELDS.items()}
        return dict(sorted(known.items())) | self.unknown

    def to_file(self) -> bytes:
        """Return the text of broker.conf: every setting, but ours only where a user set them."""
        settings = self.to_properties()
        kept = {
            key: value
            for key, value in settings.items()
            if key in self.given or not key.startswith("failback")
        }
        return write_properties(kept)

    def apply(self, properties: Mapping[str, str]) -> set[str]:
        """Take over changed settings; all of them or none. Returns the keys that changed.

        Raises:
            ConfigError: As :meth:`planned`.
        """
        trial, changed = self.planned(properties)
        self.take(trial)
        return changed

    def planned(self, properties: Mapping[str, str]) -> tuple[BrokerConfig, set[str]]:
        """Return what the settings become by a live change, and the keys that it changes.

        Keys that neither a field nor the file has are ignored, as 4.9.8 does.

        Raises:
            ConfigError: A value does not fit its key, or a running broker can't take it up.
        """
        trial = dataclasses.replace(self, unknown=dict(self.unknown))
        for key, value in properties.items():
            if key in _FIELDS:
                _set(trial, key, value, None)
            elif key in self.unknown:
                trial.unknown[key] = value
        check_together(trial)
        trial._check_names(None)
        before, after = self.to_properties(), trial.to_properties()
        changed = {key for key in after if before.get(key) != after[key]}
        refuse_late(self, trial, changed)
        trial.given = self.given | changed
        return trial, changed

    def take(self, trial: BrokerConfig) -> None:
        """Become what :meth:`planned` returned."""
        for name in _FIELDS.values():
            setattr(self, name, getattr(trial, name))
        self.unknown, self.given = trial.unknown, trial.given


def _host_name() -> str:
    return socket.gethostname() or "DEFAULT_BROKER"


def _is_default(key: str, text: str) -> bool:
    return key in _BY_KEY and means_default(_BY_KEY[key], text)


def _set(config: BrokerConfig, key: str, text: str, file: Path | None) -> None:
    name = _FIELDS[key]
    setattr(config, name, parse(_DECLARED[name], key, text.strip(), file))


_DECLARED: Final = {
    declared.name: declared
    for declared in dataclasses.fields(BrokerConfig)
    if not declared.metadata.get("own")
}
_FIELDS: Final = {BrokerConfig.key_of(name): name for name in _DECLARED}
_BY_KEY: Final = {key: _DECLARED[name] for key, name in _FIELDS.items()}
GUARDS: Final = tuple(name for name in _DECLARED if name.startswith("failback_guard_"))
"""The fields that ``failbackRules=guarded`` switches on."""
