"""The operator's own program, with a witness of its orders and, for tests, shorter long waits.

``python -m tests.support.operator.witnessed_operator PORT SCALE operator run`` is
``failback operator run``.

Each request that changes something at a broker or name server is told to the witness who listens
on PORT (0 = nobody), after its answer has come and before the operator hears of it. The operator
waits for the witness's word meanwhile: that is when it can be killed. Reading requests change
nothing; to end after one is to end after the write before it. A line to the witness is
``CODE ADDRESS ANSWER_CODE``; its word is one byte.

SCALE multiplies the waits that begin again with every operator, or last for the sake of clients
that such tests do not have: half a minute for their routes, a minute of a steady master, half a
minute without one, four minutes until nobody asks a name server that leaves.
"""

from __future__ import annotations

import socket
import sys
from types import ModuleType
from typing import Final

from failback.cli.__main__ import main
from failback.client.remoting.connection import RemotingClient
from failback.operator.planning.metadata import topic
from failback.operator.planning.nameserver import name_server
from failback.operator.planning.operations import roll, scale_down, scale_up, step_context
from failback.operator.planning.operations.switching import handover, preflight
from failback.operator.planning.state import predicates
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand

CHANGING: Final = frozenset(
    {
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
    }
)
_WAITS: Final[tuple[tuple[ModuleType, str], ...]] = (
    (predicates, "STABLE_MASTER_SECONDS"),
    (preflight, "MASTERLESS_SECONDS"),
    (name_server, "SHRINK_SECONDS"),
    (topic, "ROUTE_SECONDS"),
    *((module, "ROUTE_SECONDS") for module in (roll, scale_down, scale_up, step_context, handover)),
)


def tell_witness(port: int) -> None:
    """Put the witness between this process's remoting connections and who uses them."""
    witness = socket.create_connection(("127.0.0.1", port))
    invoke = RemotingClient.invoke

    async def witnessed(
        client: RemotingClient, addr: str, request: RemotingCommand, timeout_ms: float = 3000
    ) -> RemotingCommand:
        answer = await invoke(client, addr, request, timeout_ms)
        if request.code in CHANGING:
            witness.sendall(f"{request.code:d} {addr} {answer.code:d}\n".encode())
            witness.recv(1)
        return answer

    RemotingClient.invoke = witnessed  # type: ignore[method-assign, assignment]


def shorten_waits(scale: float) -> None:
    """Multiply the long waits of this process."""
    for module, name in _WAITS:
        setattr(module, name, getattr(module, name) * scale)


if __name__ == "__main__":
    if int(sys.argv[1]):
        tell_witness(int(sys.argv[1]))
    shorten_waits(float(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
