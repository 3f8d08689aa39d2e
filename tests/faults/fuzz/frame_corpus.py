"""Valid requests of every code that a broker answers, as the seeds of mutation."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final

from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.frames import SERIALIZE_JSON, SERIALIZE_ROCKETMQ
from failback.protocol.message import BatchElement, encode_batch
from tests.support.brokers.broker_lab import pull_header, send_header

FIELDS: Final = {
    "topic": "TopicTest",
    "group": "CG",
    "consumerGroup": "CG",
    "producerGroup": "PG",
    "groupName": "CG",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "offset": "0",
    "commitOffset": "3",
    "timestamp": "1700000000000",
    "beginTimestamp": "0",
    "endTimestamp": "1800000000000",
    "key": "k1",
    "maxNum": "10",
    "sysFlag": "4",
    "subscription": "*",
    "subVersion": "0",
    "suspendTimeoutMillis": "10",
    "clientID": "c1",
    "clientId": "c1",
    "delayLevel": "1",
    "originMsgId": "0A",
    "originTopic": "TopicTest",
    "unitMode": "false",
    "maxReconsumeTimes": "16",
    "tranStateTableOffset": "0",
    "commitLogOffset": "0",
    "commitOrRollback": "8",
    "fromTransactionCheck": "false",
    "msgId": "00",
    "transactionId": "t",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
    "bornTimestamp": "1700000000000",
    "flag": "0",
    "properties": "KEYS\x01k1\x02TAGS\x01a",
    "reconsumeTimes": "0",
    "batch": "false",
    "isForce": "true",
    "srcGroup": "CG",
    "destGroup": "CG2",
    "filterGroups": "",
    "compareGroup": "CG",
    "statsName": "TOPIC_PUT_NUMS",
    "statsKey": "TopicTest",
    "index": "0",
    "count": "5",
    "cleanOffset": "false",
}
"""Every field that some request has; others ignore what they do not know."""

_HEARTBEAT: Final = (
    b'{"clientID":"c1","producerDataSet":[{"groupName":"PG"}],"consumerDataSet":[{"groupName":"CG",'
    b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":'
    b'"CONSUME_FROM_LAST_OFFSET","unitMode":false,"subscriptionDataSet":[{"topic":"TopicTest",'
    b'"subString":"a||b","tagsSet":["a","b"],"codeSet":[97,98],"subVersion":1,"classFilterMode":'
    b'false,"expressionType":"TAG"}]}]}'
)
_LOCKS: Final = (
    b'{"consumerGroup":"CG","clientId":"c1","mqSet":[{"topic":"TopicTest","brokerName":"broker-a",'
    b'"queueId":0}]}'
)
_BODIES: Final = (
    b"",
    b"hello",
    _HEARTBEAT,
    _LOCKS,
    b"deleteWhen=05\nslaveReadEnable=true\n",
    b'{"groupName":"CG","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":16}',
    b'{"dataVersion":{"counter":1,"timestamp":1700000000000}}',
    encode_batch([BatchElement(0, b"one", b"TAGS\x01a"), BatchElement(0, b"two" * 50, b"")]),
)
_FITTING: Final = {
    RequestCode.HEART_BEAT: _HEARTBEAT,
    RequestCode.LOCK_BATCH_MQ: _LOCKS,
    RequestCode.UNLOCK_BATCH_MQ: _LOCKS,
    RequestCode.SEND_BATCH_MESSAGE: _BODIES[7],
    RequestCode.UPDATE_BROKER_CONFIG: _BODIES[4],
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _BODIES[5],
}
_OFTEN: Final = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.HEART_BEAT,
    RequestCode.END_TRANSACTION,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
"""What clients send all the time; these appear several times in the corpus."""

_SENT_PROPERTIES: Final = (
    "WAIT\x01true",
    "KEYS\x01k1 k2\x02UNIQ_KEY\x01u1\x02TAGS\x01a",
    "DELAY\x013",
    "TRAN_MSG\x01true\x02PGROUP\x01PG",
)


def corpus(codes: Iterable[int], seed: int) -> list[bytes]:
    """Return frames of all ``codes``: JSON and binary headers, fitting and other bodies."""
    random = Random(seed)
    frames = []
    for code in [*codes, *_OFTEN * 4]:
        for serialize_type in (SERIALIZE_JSON, SERIALIZE_ROCKETMQ):
            body = _FITTING.get(RequestCode(code)) if code in _FITTING else None
            request = _request(code, random)
            request.body = random.choice(_BODIES) if body is None else body
            request.opaque = random.randrange(2**31)
            request.serialize_type = serialize_type
            frames.append(request.encode())
    return frames


def _request(code: int, random: Random) -> RemotingCommand:
    if code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        header = send_header(
            properties=random.choice(_SENT_PROPERTIES), batch=code == RequestCode.SEND_BATCH_MESSAGE
        )
        return RemotingCommand.request(code, header)
    if code == RequestCode.PULL_MESSAGE:
        return RemotingCommand.request(code, pull_header(suspend_timeout_millis=10, sys_flag=7))
    return RemotingCommand.request(code, ext=FIELDS)
