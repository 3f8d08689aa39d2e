"""The blocking client of the witness: how a call ends when the peer does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from failback.chaos.cluster.wire import WireConnection
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import (
    BrokerError,
    ProtocolError,
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeout,
)
from failback.protocol.route import parse_offset_table, split_offset_key
from tests.support.net.fake_remoting import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


def while_waiting(broker: FakeBroker, act: Callable[[], None]) -> RemotingSendError:
    """Have the peer act while a request is under way; return how the call ended."""
    broker.silent.set()
    with WireConnection(broker.address) as connection:
        opaque = connection.send(RemotingCommand.request(28))
        timer = threading.Timer(0.05, act)
        timer.start()
        with pytest.raises(RemotingSendError) as caught:
            connection.receive(opaque, 5)
        timer.join()
    return caught.value


def test_a_fin_under_a_request_is_told(broker: FakeBroker) -> None:
    assert while_waiting(broker, broker.hang_up).why == "FIN"


def test_a_reset_under_a_request_is_told(broker: FakeBroker) -> None:
    assert while_waiting(broker, lambda: broker.hang_up(reset=True)).why == "RST"


def test_silence_is_a_timeout_and_the_connection_lives_on(broker: FakeBroker) -> None:
    with WireConnection(broker.address) as connection:
        broker.silent.set()
        with pytest.raises(RemotingTimeout):
            connection.runtime_info(timeout=0.05)
        broker.silent.clear()
        assert connection.runtime_info(timeout=5)["bootTimestamp"] == "1000"


def test_nobody_there_is_no_connection() -> None:
    with FakeBroker() as broker:
        address = broker.address
    with pytest.raises(RemotingConnectError):
        WireConnection(address)


def test_an_error_code_is_an_error(broker: FakeBroker) -> None:
    with WireConnection(broker.address) as connection, pytest.raises(BrokerError, match="code 1"):
        connection.group_names()


def test_an_unknown_topic_has_no_queues(broker: FakeBroker) -> None:
    broker.queues = {"orders": {3: (1, 9)}}
    with WireConnection(broker.address) as connection:
        assert connection.topic_stats("orders") == {3: (1, 9)}
        assert connection.topic_stats("other") == {}


def test_offset_tables_are_read_in_both_spellings() -> None:
    assert parse_offset_table(b'{"offsetTable":{"t@g":{0:5,1:6}}}') == {"t@g": {0: 5, 1: 6}}
    assert parse_offset_table('{"offsetTable":{"t@g":{"0":5}}}') == {"t@g": {0: 5}}
    assert parse_offset_table("{}") == {}
    assert split_offset_key("%RETRY%g@g") == ("%RETRY%g", "g")
    for torn in ("[]", '{"offsetTable":{"t@', ""):
        with pytest.raises(ProtocolError):
            parse_offset_table(torn)
