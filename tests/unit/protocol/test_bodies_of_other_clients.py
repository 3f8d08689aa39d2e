"""Heartbeats and other bodies as other clients write them: fastjson's leniency."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import pytest

from failback.protocol import clients, route, stats
from failback.protocol.body import Body
from failback.protocol.errors import ProtocolError
from tests.support.common.other_clients import Written, bodies_of_other_clients
from tests.support.common.protocol_golden import ConsumeMessageDirectlyResult

pytestmark = pytest.mark.foreign

CLASSES: Final[dict[str, type[Body]]] = {
    "DataVersion": route.DataVersion,
    "TopicConfig": route.TopicConfig,
    "admin.ConsumeStats": stats.ConsumeStats,
    "protocol.ResetOffsetBody": stats.ResetOffsetBody,
    "protocol.body.CheckClientRequestBody": clients.CheckClientRequestBody,
    "protocol.body.ClusterInfo": route.ClusterInfo,
    "protocol.body.ConsumeMessageDirectlyResult": ConsumeMessageDirectlyResult,
    "protocol.body.ConsumerConnection": clients.ConsumerConnection,
    "protocol.body.ConsumerOffsetSerializeWrapper": route.ConsumerOffsetTable,
    "protocol.body.ConsumerRunningInfo": stats.ConsumerRunningInfo,
    "protocol.body.LockBatchRequestBody": clients.LockBatchRequestBody,
    "protocol.body.RegisterBrokerBody": route.RegisterBrokerBody,
    "protocol.body.ResetOffsetBody": stats.ResetOffsetBody,
    "protocol.heartbeat.HeartbeatData": clients.HeartbeatData,
    "protocol.route.TopicRouteData": route.TopicRouteData,
    "subscription.SubscriptionGroupConfig": route.SubscriptionGroupConfig,
}
BODIES: Final = bodies_of_other_clients()


def read(cls: type[Body], text: str) -> Body | None:
    try:
        return cls.from_json(text)
    except ProtocolError:
        return None


@pytest.mark.parametrize("name", sorted({written.java_class for written in BODIES}))
def test_bodies_are_read_as_apache_reads_them(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    bodies = [written for written in BODIES if written.java_class == name]
    record_property("inputs", len(bodies))
    assert [written.body for written in bodies if not is_read_as_said(written)] == []


def is_read_as_said(written: Written) -> bool:
    """Tell whether a body is read as Apache reads it, or otherwise where its entry says so."""
    cls = CLASSES[written.java_class]
    apache = None if written.is_refused else read(cls, written.apache)
    return (read(cls, written.body) == apache) is (written.otherwise == "")


REFUSED: Final[list[tuple[type[Body], str, str]]] = [
    (
        clients.HeartbeatData,
        '{"clientID":"c","consumerDataSet":[{}]}',
        r"consumerDataSet\[0\].groupName: missing",
    ),
    (
        clients.HeartbeatData,
        '{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeFromWhere":99}]}',
        r"consumerDataSet\[0\].consumeFromWhere: 99 is no number of CONSUME_FROM_LAST_OFFSET, ",
    ),
    (
        clients.HeartbeatData,
        '{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        '[{"topic":"t"},{"topic":"t","subVersion":"x"}]}]}',
        r'consumerDataSet\[0\].subscriptionDataSet\[1\].subVersion: "x" is no whole number \(line',
    ),
    (
        route.ConsumerOffsetTable,
        '{"offsetTable":{"t@g":{\n0:1,1:null}}}',
        r"offsetTable.t@g.1: null in a table \(line 2, column 11\)",
    ),
    (clients.LockBatchRequestBody, '{"clientId":"c","mqSet":[]', "it ends too early"),
    (clients.HeartbeatData, "", "it ends too early"),
    (clients.HeartbeatData, "null", "nothing where a document is expected"),
]


@pytest.mark.parametrize(("cls", "text", "message"), REFUSED)
def test_what_cannot_be_read_is_refused_with_the_members_name(
    cls: type[Body], text: str, message: str
) -> None:
    with pytest.raises(ProtocolError, match=message):
        cls.from_json(text)


MEMBERS: Final[dict[str, Any]] = {
    "clientID": "c",
    "producerDataSet": [{"groupName": "p"}],
    "consumerDataSet": [
        {
            "groupName": "g",
            "consumeType": "CONSUME_ACTIVELY",
            "messageModel": "BROADCASTING",
            "consumeFromWhere": "CONSUME_FROM_TIMESTAMP",
            "unitMode": True,
            "subscriptionDataSet": [{"topic": "t", "subString": "a", "subVersion": 7}],
        }
    ],
}
SPELLINGS: Final = {
    "capitals": lambda name: name[0].upper() + name[1:],
    "upper case": str.upper,
    "lower case": str.lower,
    "underscores": lambda name: "".join(f"_{c}" if c.isupper() else c for c in name).lower(),
    "hyphens": lambda name: "".join(f"-{c}" if c.isupper() else c for c in name),
}
QUOTES: Final = {"double": '"{}"', "single": "'{}'", "none": "{}"}
SCALARS: Final[dict[str, dict[Any, str]]] = {
    "as they are": {},
    "numbers as texts": {7: '"7"', True: '"true"'},
    "numbers for enums": {
        "CONSUME_ACTIVELY": "0",
        "BROADCASTING": "0",
        "CONSUME_FROM_TIMESTAMP": "5",
    },
    "other case": {
        "CONSUME_ACTIVELY": '"consume_actively"',
        "BROADCASTING": '"Broadcasting"',
        "CONSUME_FROM_TIMESTAMP": '"consume_From_Timestamp"',
    },
    "numbers for booleans": {True: "1"},
}


def spelt(value: Any, spelling: Any, quotes: str, scalars: dict[Any, str]) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(
                f"{quotes.format(spelling(name))}:{spelt(part, spelling, quotes, scalars)}"
                for name, part in value.items()
            )
            + ",}"
        )
    if isinstance(value, list):
        return "[" + ",".join(spelt(part, spelling, quotes, scalars) for part in value) + "]"
    for known, text in scalars.items():
        if value is known or (value == known and type(value) is type(known)):
            return text
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f'"{value}"'


def test_every_spelling_of_a_heartbeat_means_the_same(
    record_property: Callable[[str, object], None],
) -> None:
    meant = clients.HeartbeatData(
        "c",
        [clients.ProducerData("p")],
        [
            clients.ConsumerData(
                "g",
                "CONSUME_ACTIVELY",
                "BROADCASTING",
                "CONSUME_FROM_TIMESTAMP",
                [clients.SubscriptionData("t", "a", sub_version=7)],
                True,
            )
        ],
    )
    spellings = list(itertools.product(SPELLINGS, QUOTES, SCALARS))
    record_property("inputs", len(spellings))
    for spelling, quotes, scalars in spellings:
        if (spelling, quotes) != ("hyphens", "none"):  # Java takes no hyphen without quotes
            text = spelt(MEMBERS, SPELLINGS[spelling], QUOTES[quotes], SCALARS[scalars])
            assert clients.HeartbeatData.from_json(text) == meant, text
