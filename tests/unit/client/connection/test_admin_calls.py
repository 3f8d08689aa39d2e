"""Admin calls against answers in the form that Java brokers give."""

from __future__ import annotations

from collections.abc import Callable

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.client.admin.admin import AdminClient
from failback.protocol import headers
from failback.protocol.body import MessageQueue
from failback.protocol.calls import parse_properties, write_properties
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError, ProtocolError, RemotingConnectError
from failback.protocol.headers import from_ext
from failback.protocol.route import SubscriptionGroupConfig
from failback.protocol.stats import OffsetWrapper
from tests.support.common.protocol_golden import golden_bodies
from tests.support.net.ports import free_port
from tests.support.net.remoting_peer import RemotingPeer

GOLDEN = golden_bodies()
QUEUE = MessageQueue("TopicTest", "broker-a", 3)


def bodies(**by_code: str) -> Callable[[RemotingCommand], RemotingCommand]:
    """Answer each code ``c<number>`` with a body."""

    def answer(request: RemotingCommand) -> RemotingCommand:
        return request.response(0, body=by_code[f"c{request.code}"].encode())

    return answer


async def test_unquoted_and_object_keys_of_java_are_understood() -> None:
    answers = bodies(
        c43=GOLDEN["consumer_offsets"],
        c45=GOLDEN["delay_offsets"],
        c208=GOLDEN["consume_stats"],
        c202=GOLDEN["topic_stats_table"],
        c106=GOLDEN["cluster_info"],
    )
    async with RemotingPeer(answers) as peer, AdminClient([peer.addr]) as admin:
        assert await admin.all_offsets(peer.addr) == {"TopicTest@CG": {0: 5, 1: 6}}
        assert await admin.delay_offsets(peer.addr) == {3: 12}
        stats = await admin.consume_stats(peer.addr, "CG")
        assert stats.offset_table == {QUEUE: OffsetWrapper(10, 7, 1_700_000_000_000)}
        assert (await admin.topic_stats(peer.addr, "T")).offset_table[QUEUE].max_offset == 10
        brokers = (await admin.cluster_info()).broker_addr_table
        assert brokers["broker-a"].broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}


async def test_progress_says_that_a_slave_answered() -> None:
    async with RemotingPeer() as peer, AdminClient([peer.addr]) as admin:
        route = GOLDEN["topic_route_data"].replace('"0":"10.0.0.1:10911",', "")
        route = route.replace("10.0.0.2:10911", peer.addr)
        peer.answer = bodies(c105=route, c208=GOLDEN["consume_stats"])
        (progress,) = await admin.consumer_progress("CG")
        assert (progress.broker_name, progress.broker_id) == ("broker-a", 1)
        assert progress.addr == peer.addr
        assert progress.stats.offset_table[QUEUE].consumer_offset == 7
        asked = from_ext(headers.GetRouteInfoRequestHeader, peer.received[0].ext_fields)
        assert asked.topic == "%RETRY%CG"


async def test_progress_asks_the_cluster_where_the_retry_topic_is_unknown() -> None:
    async with RemotingPeer() as peer, AdminClient([peer.addr]) as admin:
        cluster = GOLDEN["cluster_info"].replace("10.0.0.1:10911", peer.addr)
        known = bodies(c106=cluster, c208=GOLDEN["consume_stats"])
        peer.answer = lambda request: (
            request.response(17, "No topic route") if request.code == 105 else known(request)
        )
        (progress,) = await admin.consumer_progress("CG")
        assert (progress.broker_id, progress.addr) == (0, peer.addr)


async def test_another_code_than_success_is_an_error_that_names_the_address() -> None:
    async with (
        RemotingPeer(lambda r: r.response(206, "not online")) as peer,
        AdminClient() as admin,
    ):
        with pytest.raises(BrokerError, match=f"{peer.addr} answered code 206: not online") as got:
            await admin.consumer_connection(peer.addr, "G")
        assert (got.value.code, got.value.remark, got.value.addr) == (206, "not online", peer.addr)


async def test_no_stored_offset_is_none() -> None:
    async with RemotingPeer(lambda r: r.response(22)) as peer, AdminClient() as admin:
        assert await admin.query_offset(peer.addr, "G", "T", 0) is None
        peer.answer = lambda r: r.response(0, ext={"offset": "7"})
        assert await admin.query_offset(peer.addr, "G", "T", 0) == 7
        peer.answer = lambda r: r.response(1)
        with pytest.raises(BrokerError):
            await admin.query_offset(peer.addr, "G", "T", 0)


async def test_an_answer_that_cannot_be_read_is_a_protocol_error() -> None:
    async with RemotingPeer(lambda r: r.response(0, body=b"{")) as peer, AdminClient() as admin:
        with pytest.raises(ProtocolError):
            await admin.all_offsets(peer.addr)
        with pytest.raises(ProtocolError, match="offset"):
            await admin.max_offset(peer.addr, "T", 0)


async def test_orders_carry_what_they_were_given() -> None:
    async with RemotingPeer() as peer, AdminClient() as admin:
        config = SubscriptionGroupConfig("CG")
        await admin.create_group(peer.addr, config)
        assert peer.received[-1].body.decode() == GOLDEN["subscription_group_config"]
        await admin.update_offset(peer.addr, "G", "T", 3, -1)
        header = from_ext(headers.UpdateConsumerOffsetRequestHeader, peer.received[-1].ext_fields)
        assert (header.queue_id, header.commit_offset) == (3, -1)
        await admin.delete_group(peer.addr, "G", remove_offset=True)
        assert peer.received[-1].ext_fields == {
            "groupName": "G",
            "removeOffset": "true",
            "cleanOffset": "true",
        }


async def test_the_name_server_in_reach_is_asked() -> None:
    async with RemotingPeer(bodies(c206='{"topicList":["b","a"]}')) as peer:
        addrs = [f"127.0.0.1:{free_port()}", peer.addr]
        async with AdminClient(addrs) as admin:
            assert await admin.topic_list() == ["a", "b"]
        async with AdminClient() as admin:
            with pytest.raises(RemotingConnectError, match="no address is configured"):
                await admin.topic_list()


def test_properties_of_an_answer_are_plain_lines() -> None:
    assert parse_properties(b"a=1\r\nb=x=y\n\nnothing\nc=") == {"a": "1", "b": "x=y", "c": ""}


lines = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(settings=st.dictionaries(lines.filter(bool), lines, max_size=4))
def test_properties_of_a_request_are_what_java_util_properties_reads(
    settings: dict[str, str],
) -> None:
    assert javaproperties.loads(write_properties(settings)) == settings
