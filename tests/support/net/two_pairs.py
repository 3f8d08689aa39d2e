"""Two masters that answer what a test tells them, and their name server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from failback.protocol.command import RemotingCommand
from failback.protocol.fastjson import dumps
from tests.support.net.fake_remoting import Answer, FakeBroker, FakeRemoting

TOPIC = "orders"
GROUP = "billing"
KEY = f"{TOPIC}@{GROUP}"
FIRST, END = 3, 10
STORED_MS = 1_750_000_000_000


class Master(FakeBroker):
    """A master with two queues of a topic, from offset 3 to 10."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.config["brokerName"] = name
        self.queues[TOPIC] = dict.fromkeys((0, 1), (FIRST, END))
        self.offsets[KEY] = {0: 5, 1: 5}
        self.members: list[dict[str, Any]] = []
        self.model = "CLUSTERING"
        self.topics = [TOPIC]
        self.groups = [GROUP]
        self.pushed = 0
        self.answers |= {
            14: self._query,
            21: self._topics,
            28: lambda r: self._body(r, {"table": {"brokerVersionDesc": "V4_9_8"}}),
            29: lambda r: r.response(0, ext={"offset": "4"}),
            30: lambda r: r.response(0, ext={"offset": str(END)}),
            31: lambda r: r.response(0, ext={"offset": str(FIRST)}),
            32: lambda r: r.response(0, ext={"timestamp": str(STORED_MS)}),
            12: lambda r: r.response(22, "nothing has that key"),
            201: lambda r: self._body(
                r, {"subscriptionGroupTable": {g: {"groupName": g} for g in self.groups}}
            ),
            203: self._connection,
            208: self._progress,
            222: self._reset,
        }

    def _of(self, request: RemotingCommand) -> tuple[str, int]:
        ext = request.ext_fields or {}
        return f"{ext['topic']}@{ext['consumerGroup']}", int(ext["queueId"])

    def _query(self, request: RemotingCommand) -> RemotingCommand:
        key, queue = self._of(request)
        offset = self.offsets.get(key, {}).get(queue)
        if offset is None:
            return request.response(22, "no entry")
        return request.response(0, ext={"offset": str(offset)})

    def _topics(self, request: RemotingCommand) -> RemotingCommand:
        table = {
            topic: {
                "topicName": topic,
                "readQueueNums": len(queues),
                "writeQueueNums": len(queues),
                "perm": 6,
            }
            for topic, queues in self.queues.items()
        }
        return self._body(request, {"topicConfigTable": table})

    def _connection(self, request: RemotingCommand) -> RemotingCommand:
        if not self.members:
            return request.response(206, "not online")
        return self._body(
            request,
            {
                "connectionSet": self.members,
                "messageModel": self.model,
                "subscriptionTable": {each: {"topic": each} for each in self.topics},
            },
        )

    def _progress(self, request: RemotingCommand) -> RemotingCommand:
        group = (request.ext_fields or {})["consumerGroup"]
        entries = ",".join(
            f'{{"brokerName":"{self.name}","queueId":{queue},"topic":"{topic}"}}:'
            f'{{"brokerOffset":{end},"lastTimestamp":0,'
            f'"consumerOffset":{self.offsets[f"{topic}@{group}"].get(queue, 0)}}}'
            for topic, queues in self.queues.items()
            if f"{topic}@{group}" in self.offsets
            for queue, (_, end) in queues.items()
        )
        body = f'{{"consumeTps":0,"offsetTable":{{{entries}}}}}'
        return request.response(0, body=body.encode())

    def _reset(self, request: RemotingCommand) -> RemotingCommand:
        """As 4.9 does: not for a group that lacks an offset of any queue."""
        ext = request.ext_fields or {}
        held = self.offsets.get(f"{ext['topic']}@{ext['group']}", {})
        queues = self.queues[ext["topic"]]
        if any(held.get(queue, -1) < 0 for queue in queues):
            return request.response(1, f"THe consumer group <{ext['group']}> not exist")
        if not self.members:
            return request.response(206, "Consumer not online")
        self.pushed += 1
        entries = ",".join(
            f'{{"brokerName":"{self.name}","queueId":{queue},"topic":"{ext["topic"]}"}}:4'
            for queue in queues
        )
        return request.response(0, body=f'{{"offsetTable":{{{entries}}}}}'.encode())


class TwoPairs:
    """broker-a and broker-b; the name server lists the topic on both, whatever they hold."""

    def __init__(self) -> None:
        self.a, self.b = Master("broker-a"), Master("broker-b")
        self.places = {each.name: each.address for each in (self.a, self.b)}
        self.clusters = dict.fromkeys(self.places, "c")
        self.namesrv = FakeRemoting({105: self._route, 106: self._cluster, 206: self._topics})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self.namesrv, self.a, self.b):
            each.close()

    def _route(self, request: RemotingCommand) -> RemotingCommand:
        if (request.ext_fields or {})["topic"] != TOPIC:
            return request.response(17, "no route")
        brokers = [self._data(name) for name in self.places]
        queues = [
            {"brokerName": each.name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
            for each in (self.a, self.b)
        ]
        return request.response(0, body=dumps({"brokerDatas": brokers, "queueDatas": queues}))

    def _data(self, name: str) -> dict[str, Any]:
        addresses = {"0": self.places[name]}
        return {"cluster": self.clusters[name], "brokerName": name, "brokerAddrs": addresses}

    def _cluster(self, request: RemotingCommand) -> RemotingCommand:
        table = {name: self._data(name) for name in self.places}
        names: dict[str, list[str]] = {}
        for name in (self.a.name, self.b.name):
            names.setdefault(self.clusters[name], []).append(name)
        body = {"brokerAddrTable": table, "clusterAddrTable": names}
        return request.response(0, body=dumps(body))

    def _topics(self, request: RemotingCommand) -> RemotingCommand:
        return request.response(0, body=dumps({"topicList": [TOPIC]}))


def freeze(broker: FakeRemoting) -> None:
    """Take connections and requests, and answer nothing, as a stopped process does."""
    broker.silent.set()


def go(broker: FakeRemoting) -> None:
    broker.close()


def lose_topic(broker: Master) -> None:
    broker.queues.clear()


def answering(answer: Answer) -> Callable[[Master], None]:
    """Answer everything in one way."""

    def change(broker: Master) -> None:
        broker.answers = dict.fromkeys(range(1000), answer)

    return change


FAULTS: dict[str, Callable[[Master], None]] = {
    "frozen": freeze,
    "gone": go,
    "lost the topic": lose_topic,
    "empty answers": answering(lambda r: r.response(0)),
    "garbage": answering(lambda r: r.response(0, body=b"\x00\xff{garbage", ext={"offset": "x"})),
    "another shape": answering(
        lambda r: r.response(0, body=b'[{"table":7,"offsetTable":[1]}]', ext={"offset": "-"})
    ),
    "another version": answering(lambda r: r.response(3, f" request type {r.code} not supported")),
    "an error": answering(lambda r: r.response(1, "java.lang.NullPointerException")),
}
