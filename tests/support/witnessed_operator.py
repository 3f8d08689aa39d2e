"""The operator's own program, with a witness of the orders that it gives to brokers.

``python -m tests.support.witnessed_operator PORT operator run`` is ``failback operator run``. Each
request that changes something at a broker or name server is told to the witness who listens on
PORT, after its answer has come and before the operator hears of it. The operator waits for the
witness's word meanwhile: that is when it can be killed. Reading requests change nothing; to end
after one is to end after the write before it.

Line to the witness: ``CODE ADDRESS ANSWER_CODE``; its word is one byte.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

from failback.cli.__main__ import main
from failback.client.connection import RemotingClient
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


def tell_witness(port: int) -> None:
    """Put the witness between this process's remoting connections and who uses them."""
    witness = socket.create_connection(("127.0.0.1", port))
    invoke = RemotingClient.invoke

    async def witnessed(
        client: RemotingClient, addr: str, request: RemotingCommand, timeout_ms: float = 3000
    ) -> RemotingCommand:
        answer = await invoke(client, addr, request, timeout_ms)
        if request.code in CHANGING:
            witness.sendall(f"{request.code} {addr} {answer.code}\n".encode())
            witness.recv(1)
        return answer

    RemotingClient.invoke = witnessed  # type: ignore[method-assign]


if __name__ == "__main__":
    tell_witness(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
