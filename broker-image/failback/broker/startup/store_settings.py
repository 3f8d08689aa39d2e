"""The store's part of broker.conf."""

from __future__ import annotations

from pathlib import Path

from failback.broker.config.config import BrokerConfig
from failback.broker.config.identity import BrokerIdentity
from failback.broker.store.config import StoreConfig


def store_config(config: BrokerConfig, identity: BrokerIdentity) -> StoreConfig:
    """Build the store's settings; intervals are scaled here."""
    scale = config.time_scale
    settings = StoreConfig(
        root=Path(config.store_path_root_dir),
        commit_log_path=Path(config.store_path_commit_log),
        store_host=identity.store_host,
        broker_role=config.broker_role,
        mapped_file_bytes=config.mapped_file_size_commit_log,
        consume_queue_file_bytes=config.mapped_file_size_consume_queue,
        flush_disk_type=config.flush_disk_type,
        flush_interval_ms=scale.ms(config.flush_interval_commit_log),
        flush_timed=config.flush_commit_log_timed,
        flush_least_pages=config.flush_commit_log_least_pages,
        flush_thorough_interval_ms=scale.ms(config.flush_commit_log_thorough_interval),
        consume_queue_flush_interval_ms=scale.ms(config.flush_interval_consume_queue),
        consume_queue_flush_least_pages=config.flush_consume_queue_least_pages,
        consume_queue_flush_thorough_interval_ms=scale.ms(
            config.flush_consume_queue_thorough_interval
        ),
        check_crc_on_recover=config.check_crc_on_recover,
        message_index_enable=config.message_index_enable,
        max_hash_slot_num=config.max_hash_slot_num,
        max_index_num=config.max_index_num,
        message_delay_level=config.message_delay_level,
        delay_scale=scale.factor,
    )
    apply_live(settings, config)
    return settings


def apply_live(settings: StoreConfig, config: BrokerConfig) -> None:
    """Copy what may change while the store runs."""
    settings.max_message_bytes = config.max_message_size
    settings.sync_flush_timeout_ms = config.time_scale.ms(config.sync_flush_timeout)
    settings.access_message_in_memory_max_ratio = config.access_message_in_memory_max_ratio
    settings.max_transfer_bytes_in_memory = config.max_transfer_bytes_on_message_in_memory
    settings.max_transfer_count_in_memory = config.max_transfer_count_on_message_in_memory
    settings.max_transfer_bytes_on_disk = config.max_transfer_bytes_on_message_in_disk
    settings.max_transfer_count_on_disk = config.max_transfer_count_on_message_in_disk
    settings.offset_check_in_slave = config.offset_check_in_slave
    scale = config.time_scale
    settings.max_msgs_num_batch = config.max_msgs_num_batch
    settings.delete_when = config.delete_when
    settings.file_reserved_ms = scale.ms(config.file_reserved_time * 3_600_000)
    settings.disk_max_used_ratio = config.disk_max_used_space_ratio
    settings.clean_file_forcibly = config.clean_file_forcibly_enable
    settings.delete_log_files_interval_ms = scale.ms(config.delete_commit_log_files_interval)
