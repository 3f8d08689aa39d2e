"""What the name server answers. No I/O but the key-value file and the configuration file.

One method per request code; they return the response, and what they raise becomes a
response too (:meth:`Processor.process`). Source: DefaultRequestProcessor, apache/rocketmq
4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from failback.common.replacing import rewrite_file
from failback.common.text import visible, why
from failback.namesrv.config import NamesrvConfig
from failback.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfigManager
from failback.namesrv.routes import UNIT_FLAG, UNIT_SUB_FLAG, Registration, RouteInfoManager
from failback.protocol import headers, names
from failback.protocol.body import Body, check_weight
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ConfigError, ProtocolError
from failback.protocol.headers import from_ext
from failback.protocol.properties import properties_of
from failback.protocol.route import (
    MOST_INFLATED_BYTES,
    DataVersion,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
)
from failback.protocol.stats import KVTable, TopicList

logger = logging.getLogger(__name__)

_MOST_FILTER_SERVERS: Final = 64
MOST_SETTINGS_BYTES: Final = 65_536
"""Most bytes of a request that changes settings."""
_V3_0_11: Final = 37  # from here on a registration's body holds a list of filter servers
_MOST_WEIGHT_BYTES: Final = 16 * 1024**2
"""What a registration in JSON may take in memory, roughly: 16,000 topics."""
_NO_ROUTE: Final = (
    "No topic route info in name server for the topic: {}"
    "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)

ROUTINE_CODES: Final = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,  # one that does not differ keeps a broker in the routes
    }
)
"""What brokers send by themselves, and what changes something."""
ADMIN_CODES: Final = ROUTINE_CODES | {
    RequestCode.PUT_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.UPDATE_NAMESRV_CONFIG,
}
"""What a name server with ``aclEnable`` takes of administrators alone; all else is read only."""

Answer = RemotingCommand | asyncio.Future[RemotingCommand | None]
"""A future: the answer has to wait for a write."""
Handler = Callable[[RemotingCommand, Hashable], Answer]


@dataclass(slots=True)
class Processor:
    """Answers requests from the route tables, the key-value table and the configuration."""

    routes: RouteInfoManager
    kv_config: KVConfigManager
    config: NamesrvConfig
    clock_ms: Callable[[], int]
    full_tables: int = field(init=False, default=0)
    """How often something was refused for want of room."""
    _handlers: dict[int, Handler] = field(init=False)

    def __post_init__(self) -> None:
        self._handlers = {
            RequestCode.PUT_KV_CONFIG: self._put_kv_config,
            RequestCode.GET_KV_CONFIG: self._get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kv_list,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister_broker,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._get_unit_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    def process(self, request: RemotingCommand, channel: Hashable) -> Answer | None:
        """Answer a ``request`` received on ``channel``; ``None`` for a one-way request."""
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f" request type {request.code} not supported"
            response: Answer = request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        else:
            response = self._handle(handler, request, channel)
        return None if request.is_oneway and isinstance(response, RemotingCommand) else response

    def _handle(self, handler: Handler, request: RemotingCommand, channel: Hashable) -> Answer:
        try:
            request.check_body()
            return handler(request, channel)
        except names.TableFull as error:
            self.full_tables += 1
            logger.warning("request code=%d channel=%s refused: %s", request.code, channel, error)
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))
        except (ProtocolError, ConfigError) as error:
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))
        except Exception as error:  # our bug, or the disk: this request fails, not the connection
            logger.exception("request code=%d channel=%s failed", request.code, channel)
            return request.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    # --- brokers ---

    def _register_broker(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        header = from_ext(headers.RegisterBrokerRequestHeader, request.ext_fields)
        if header.body_crc32 and zlib.crc32(request.body) & 0x7FFFFFFF != header.body_crc32:
            return request.response(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        try:
            body = _registration_body(
                request, header.compressed, self.config.max_registration_bytes
            )
        except ProtocolError as error:
            if not header.compressed:
                raise
            what = f"registration of {visible(header.broker_name)} at {visible(header.broker_addr)}"
            bound = "failbackMaxRegistrationBytes bounds what one inflates to"
            raise names.TableFull(f"{what} is not taken: {error}; {bound}") from error
        servers = tuple(body.filter_server_list)
        _check_registration(header, servers)
        known = header.broker_addr in self.routes.live_brokers()
        registration = Registration(
            header.cluster_name,
            header.broker_name,
            header.broker_id,
            header.broker_addr,
            header.ha_server_addr,
            body.topic_config_serialize_wrapper,
            servers,
            channel,
        )
        result = self.routes.register_broker(registration, self.clock_ms())
        if not known:
            logger.info(
                "new broker registered broker=%s id=%d addr=%s ha=%s",
                header.broker_name,
                header.broker_id,
                header.broker_addr,
                header.ha_server_addr,
            )
        answer = headers.RegisterBrokerResponseHeader(result.ha_server_addr, result.master_addr)
        order_topics = self.kv_config.namespace(ORDER_TOPIC_CONFIG)
        order_body = b"" if order_topics is None else KVTable(order_topics).to_json()
        return request.response(ResponseCode.SUCCESS, header=answer, body=order_body)

    def _unregister_broker(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        header = from_ext(headers.UnregisterBrokerRequestHeader, request.ext_fields)
        _check_broker(header)
        self.routes.unregister_broker(
            header.cluster_name, header.broker_name, header.broker_id, header.broker_addr
        )
        logger.info(
            "broker unregistered broker=%s id=%d addr=%s",
            header.broker_name,
            header.broker_id,
            header.broker_addr,
        )
        return request.response(ResponseCode.SUCCESS)

    def _query_data_version(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        header = from_ext(headers.QueryDataVersionRequestHeader, request.ext_fields)
        version = DataVersion.from_json(request.body)
        changed, known = self.routes.query_data_version(
            header.broker_addr, version, self.clock_ms()
        )
        answer = headers.QueryDataVersionResponseHeader(changed)
        body = known.to_json() if known else b""
        return request.response(ResponseCode.SUCCESS, header=answer, body=body)

    def _wipe_write_perm(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        header = from_ext(headers.WritePermOfBrokerRequestHeader, request.ext_fields)
        names.check_broker_name(header.broker_name)
        count = self.routes.wipe_write_perm(header.broker_name)
        logger.info("wiped write permission broker=%s topics=%d", header.broker_name, count)
        answer = headers.WipeWritePermOfBrokerResponseHeader(count)
        return request.response(ResponseCode.SUCCESS, header=answer)

    def _add_write_perm(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        header = from_ext(headers.WritePermOfBrokerRequestHeader, request.ext_fields)
        names.check_broker_name(header.broker_name)
        count = self.routes.add_write_perm(header.broker_name)
        logger.info("added write permission broker=%s topics=%d", header.broker_name, count)
        answer = headers.AddWritePermOfBrokerResponseHeader(count)
        return request.response(ResponseCode.SUCCESS, header=answer)

    # --- routes and topics ---

    def _get_route(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        header = from_ext(headers.GetRouteInfoRequestHeader, request.ext_fields)
        route = self.routes.route(header.topic)
        if route is None:
            remark = _NO_ROUTE.format(header.topic)
            return request.response(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self.config.order_message_enable:
            route.order_topic_conf = self.kv_config.get(ORDER_TOPIC_CONFIG, header.topic)
        # Integer keys are quoted for every version: every reader in use takes them so.
        return _answer_body(request, route)

    def _get_cluster_info(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        return request.response(ResponseCode.SUCCESS, body=self.routes.cluster_answer())

    def _get_all_topics(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        return _answer_body(request, TopicList(self.routes.all_topics()))

    def _get_topics_of_cluster(
        self, request: RemotingCommand, channel: Hashable
    ) -> RemotingCommand:
        header = from_ext(headers.GetTopicsByClusterRequestHeader, request.ext_fields)
        return _answer_body(request, TopicList(self.routes.topics_of_cluster(header.cluster)))

    def _get_system_topics(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        topics, broker_addr = self.routes.system_topics()
        return _answer_body(request, TopicList(topics, broker_addr))

    def _get_unit_topics(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        accept = _UNIT_RULES[request.code]
        return _answer_body(request, TopicList(self.routes.topics_by_sys_flag(accept)))

    def _delete_topic(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        header = from_ext(headers.DeleteTopicRequestHeader, request.ext_fields)
        self.routes.delete_topic(header.topic, header.cluster_name or None)
        logger.info("deleted topic=%s cluster=%s", header.topic, header.cluster_name or "all")
        return request.response(ResponseCode.SUCCESS)

    # --- key-value configuration ---

    def _put_kv_config(self, request: RemotingCommand, channel: Hashable) -> Answer:
        header = from_ext(headers.PutKVConfigRequestHeader, request.ext_fields)
        names.check_key(header.namespace)
        names.check_setting(header.key, header.value)
        write = self.kv_config.put(header.namespace, header.key, header.value)
        return self._when_stored(request, write)

    def _get_kv_config(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        header = from_ext(headers.GetKVConfigRequestHeader, request.ext_fields)
        value = self.kv_config.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.response(
            ResponseCode.SUCCESS, header=headers.GetKVConfigResponseHeader(value)
        )

    def _delete_kv_config(self, request: RemotingCommand, channel: Hashable) -> Answer:
        header = from_ext(headers.DeleteKVConfigRequestHeader, request.ext_fields)
        return self._when_stored(request, self.kv_config.delete(header.namespace, header.key))

    @staticmethod
    def _when_stored(request: RemotingCommand, write: asyncio.Future[None] | None) -> Answer:
        response = request.response(ResponseCode.SUCCESS)
        if write is None:
            return response
        answer: asyncio.Future[RemotingCommand | None] = write.get_loop().create_future()

        def done(write: asyncio.Future[None]) -> None:
            found, error = response, write.exception()
            if error is not None:
                logger.error("request code=%d failed: %s", request.code, error)
                remark = f"{type(error).__name__}: {error}"
                found = request.response(ResponseCode.SYSTEM_ERROR, remark)
            answer.set_result(None if request.is_oneway else found)

        write.add_done_callback(done)
        return answer

    def _get_kv_list(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        header = from_ext(headers.GetKVListByNamespaceRequestHeader, request.ext_fields)
        table = self.kv_config.namespace(header.namespace)
        if table is None:
            remark = f"No config item, Namespace: {header.namespace}"
            return request.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return _answer_body(request, KVTable(table))

    # --- own configuration ---

    def _update_config(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        if len(request.body) > MOST_SETTINGS_BYTES:
            raise ConfigError("settings", f"are more than {MOST_SETTINGS_BYTES} bytes")
        changes = properties_of(request.body).values
        if self.config.is_protected(changes):
            remark = "Can not update config in black list."
            return request.response(ResponseCode.NO_PERMISSION, remark)
        for key, value in changes.items():
            names.check_setting(key, value)
        config = self.config.updated(changes)
        try:
            rewrite_file(config.config_store_path, config.to_file())
        except OSError as error:
            remark = f"{config.config_store_path} can't be written: {why(error)}"
            raise ProtocolError(f"{remark}; nothing was changed") from error
        self.config = config
        logger.info("updated configuration keys=%s", sorted(changes))
        return request.response(ResponseCode.SUCCESS)

    def _get_config(self, request: RemotingCommand, channel: Hashable) -> RemotingCommand:
        return request.response(ResponseCode.SUCCESS, body=self.config.to_text().encode())


_UNIT_RULES: Final[dict[int, Callable[[int], bool]]] = {
    RequestCode.GET_UNIT_TOPIC_LIST: lambda flag: bool(flag & UNIT_FLAG),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: lambda flag: bool(flag & UNIT_SUB_FLAG),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: lambda flag: (
        flag & (UNIT_FLAG | UNIT_SUB_FLAG) == UNIT_SUB_FLAG
    ),
}


def _answer_body(request: RemotingCommand, body: Body) -> RemotingCommand:
    return request.response(ResponseCode.SUCCESS, body=body.to_json())


def _check_registration(
    header: headers.RegisterBrokerRequestHeader, filter_servers: tuple[str, ...]
) -> None:
    """Refuse a broker whose names and addresses no client could use.

    Raises:
        NameRefused: Says which.
    """
    _check_broker(header)
    if header.ha_server_addr:
        names.check_address("HA address", header.ha_server_addr)
    if len(filter_servers) > _MOST_FILTER_SERVERS:
        raise names.NameRefused(f"{len(filter_servers)} filter servers of one broker")
    for server in filter_servers:
        names.check_address("address of a filter server", server)


def _check_broker(
    header: headers.RegisterBrokerRequestHeader | headers.UnregisterBrokerRequestHeader,
) -> None:
    names.check_cluster_name(header.cluster_name)
    names.check_broker_name(header.broker_name)
    names.check_address("broker's address", header.broker_addr)


def _registration_body(
    request: RemotingCommand, compressed: bool, most_bytes: int = MOST_INFLATED_BYTES
) -> RegisterBrokerBody:
    """Read a registration's body in any of its three forms; an empty one has no topics.

    ``most_bytes``: what a compressed one may be when it is inflated.
    """
    if not request.body:
        return RegisterBrokerBody()
    if not compressed:
        check_weight(request.body, _MOST_WEIGHT_BYTES)
    if request.version < _V3_0_11:
        return RegisterBrokerBody(TopicConfigSerializeWrapper.from_json(request.body))
    if compressed:
        return RegisterBrokerBody.from_compressed(request.body, most_bytes)
    return RegisterBrokerBody.from_json(request.body)
