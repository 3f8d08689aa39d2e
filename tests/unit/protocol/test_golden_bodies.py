"""Bodies character for character as fastjson writes them, and every other form it may take."""

from __future__ import annotations

import json

import pytest

from failback.protocol import fastjson
from failback.protocol.body import Body, MessageQueue
from failback.protocol.clients import (
    CheckClientRequestBody,
    ConsumerConnection,
    ConsumerIdList,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerConnection,
    ProducerTableInfo,
)
from failback.protocol.route import (
    ClusterInfo,
    ConsumerOffsetTable,
    DataVersion,
    DelayOffsetTable,
    RegisterBrokerBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from failback.protocol.stats import (
    BrokerStatsData,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    GetConsumerStatusBody,
    GroupList,
    KVTable,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    TopicList,
    TopicStatsTable,
)
from tests.support.common.protocol_golden import ConsumeMessageDirectlyResult, golden_bodies

GOLDEN = golden_bodies()
TYPES: dict[str, type[Body]] = {
    "heartbeat_data": HeartbeatData,
    "topic_route_data": TopicRouteData,
    "cluster_info": ClusterInfo,
    "topic_config_wrapper": TopicConfigSerializeWrapper,
    "register_broker_body": RegisterBrokerBody,
    "data_version": DataVersion,
    "subscription_group_config": SubscriptionGroupConfig,
    "subscription_group_wrapper": SubscriptionGroupWrapper,
    "consumer_offsets": ConsumerOffsetTable,
    "delay_offsets": DelayOffsetTable,
    "lock_batch_request": LockBatchRequestBody,
    "lock_batch_response": LockBatchResponseBody,
    "topic_stats_table": TopicStatsTable,
    "consume_stats": ConsumeStats,
    "consume_stats_list": ConsumeStatsList,
    "reset_offset": ResetOffsetBody,
    "consumer_status_of_client": GetConsumerStatusBody,
    "consumer_status_of_broker": GetConsumerStatusBody,
    "kv_table": KVTable,
    "topic_list": TopicList,
    "group_list": GroupList,
    "consumer_id_list": ConsumerIdList,
    "correction_offsets": QueryCorrectionOffsetBody,
    "consumer_connection": ConsumerConnection,
    "producer_connection": ProducerConnection,
    "producer_table_info": ProducerTableInfo,
    "consume_time_span": QueryConsumeTimeSpanBody,
    "broker_stats_data": BrokerStatsData,
    "consume_queue_dump": QueryConsumeQueueResponseBody,
    "check_client_request": CheckClientRequestBody,
    "consumer_running_info": ConsumerRunningInfo,
    "consume_directly_result": ConsumeMessageDirectlyResult,
}
QUEUE = MessageQueue("TopicTest", "broker-a", 3)


def test_every_golden_body_has_a_type() -> None:
    assert GOLDEN.keys() == TYPES.keys() | {"reset_offset_for_cpp"}


@pytest.mark.parametrize("name", TYPES)
def test_golden_body_round_trips(name: str) -> None:
    golden = GOLDEN[name]
    # J2 is the standard form: its integer keys are quoted.
    unquoted = name != "topic_route_data"
    body = TYPES[name].from_json(golden.encode())
    assert body.to_json(unquoted_int_keys=unquoted).decode() == golden


@pytest.mark.parametrize("name", TYPES)
def test_what_we_write_by_default_reads_back(name: str) -> None:
    body = TYPES[name].from_json(GOLDEN[name])
    assert TYPES[name].from_json(body.to_json()) == body
    assert TYPES[name].from_json(body.to_json(pretty=True)) == body


def test_integer_keys_are_quoted_by_default() -> None:
    written = ConsumerOffsetTable({"T@G": {1: 6, 0: 5}}).to_json()
    assert json.loads(written) == {"offsetTable": {"T@G": {"0": 5, "1": 6}}}


def test_the_old_route_form_with_unquoted_keys_is_read() -> None:
    old = GOLDEN["topic_route_data"].replace('"0":', "0:").replace('"1":', "1:")
    expected = TopicRouteData.from_json(GOLDEN["topic_route_data"])
    assert TopicRouteData.from_json(old) == expected
    assert expected.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}


def test_a_queue_key_may_be_a_string_that_holds_the_object() -> None:
    key = json.dumps('{"brokerName":"broker-a","queueId":3,"topic":"TopicTest"}')
    assert ResetOffsetBody.from_json(f'{{"offsetTable":{{{key}:5}}}}').offset_table == {QUEUE: 5}


def test_the_list_form_for_cpp_clients_is_read() -> None:
    assert ResetOffsetBody.from_json(GOLDEN["reset_offset_for_cpp"]).offset_table == {QUEUE: 5}


def test_consume_stats_are_typed() -> None:
    stats = ConsumeStats.from_json(GOLDEN["consume_stats"])
    assert stats == ConsumeStats({QUEUE: OffsetWrapper(10, 7, 1_700_000_000_000)}, 1.5)


def test_missing_members_get_java_s_defaults() -> None:
    assert TopicConfig.from_json('{"topicName":"T"}') == TopicConfig("T", 16, 16, 6)
    config = SubscriptionGroupConfig.from_json('{"groupName":"G"}')
    assert (config.retry_max_times, config.which_broker_when_consume_slowly) == (16, 1)
    assert HeartbeatData.from_json('{"clientID":"c"}') == HeartbeatData("c", [], [])


def test_members_of_5x_are_ignored_and_numbers_may_be_strings() -> None:
    text = '{"counter":"4","stateVersion":9,"timestamp":1700000000000}'
    assert DataVersion.from_json(text) == DataVersion(1_700_000_000_000, 4)


def test_defaults_are_not_shared_between_bodies() -> None:
    first, second = HeartbeatData("a"), HeartbeatData("b")
    first.producer_data_set.append("x")  # type: ignore[arg-type]
    assert second.producer_data_set == []


def test_absent_values_are_left_out() -> None:
    assert b"orderTopicConf" not in TopicRouteData().to_json()
    assert TopicRouteData(order_topic_conf="broker-a:8").to_json() == (
        b'{"brokerDatas":[],"filterServerTable":{},"orderTopicConf":"broker-a:8","queueDatas":[]}'
    )


def test_data_version_moves_on() -> None:
    assert DataVersion(5, 4).next(now_ms=9) == DataVersion(9, 5)


def test_pretty_form_is_that_of_the_configuration_files() -> None:
    table = ConsumerOffsetTable({"%RETRY%g1@g1": {0: 5}, "TopicA@g1": {0: 5, 1: 7}})
    assert table.to_json(pretty=True).decode() == (
        '{\n\t"offsetTable":{\n\t\t"%RETRY%g1@g1":{0:5\n\t\t},'
        '\n\t\t"TopicA@g1":{0:5,1:7\n\t\t}\n\t}\n}'
    )
    assert fastjson.dumps({"a": {}, "b": []}, pretty=True) == b'{\n\t"a":{},\n\t"b":[]\n}'


def test_a_queue_is_named_in_logs_as_reports_name_it() -> None:
    assert str(MessageQueue("orders", "broker-a", 3)) == "orders broker-a/3"
