"""Signatures of requests: the vectors that Apache's client made, and what is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess, KeyFile
from failback.client.remoting.guarded.signing import AccessKey, access_key_of, sign
from failback.client.remoting.settings import ClientSettings
from failback.protocol.command import RemotingCommand
from tests.support.net.remoting_peer import RemotingPeer

KEY = AccessKey("rocketmq2", "12345678")


def signed(ext: dict[str, str] | None = None, body: bytes = b"", key: AccessKey = KEY) -> str:
    request = RemotingCommand.request(105, ext=ext, body=body)
    sign(request, key)
    assert request.ext_fields is not None
    return request.ext_fields["Signature"]


@pytest.mark.sample
@pytest.mark.parametrize(
    ("ext", "body", "signature"),
    [
        (None, b"", "Ou1T58RIcyZWaTIwzkhJZWn/Zvs="),
        ({"topic": "TBW102"}, b"", "/u5P/wZUbhjanu4LM/UzEdo2u2I="),
        (None, b"fileReservedTime=48\n", "AR051y09Xizr7VUr1bN80YgGkw4="),
        ({"OnsChannel": "ALIYUN", "topic": "TJ"}, b"", "pXFJA6YudTKJsqWMjlBTPsmalEA="),
    ],
)
def test_signatures_are_those_of_apaches_client(
    ext: dict[str, str] | None, body: bytes, signature: str
) -> None:
    assert signed(ext, body) == signature


def test_a_request_that_is_sent_again_is_signed_anew() -> None:
    request = RemotingCommand.request(105, ext={"topic": "TBW102"})
    sign(request, AccessKey("another", "87654321", "token"))
    sign(request, KEY)
    assert request.ext_fields == {
        "AccessKey": "rocketmq2",
        "Signature": "/u5P/wZUbhjanu4LM/UzEdo2u2I=",
        "topic": "TBW102",
    }


def test_the_fields_of_others_are_left_alone() -> None:
    fields = {"topic": "orders"}
    request = RemotingCommand.request(105)
    request.ext_fields = fields
    sign(request, KEY)
    assert fields == {"topic": "orders"}
    assert access_key_of(request) == "rocketmq2"


def test_a_security_token_is_sent_and_signed() -> None:
    request = RemotingCommand.request(105)
    sign(request, AccessKey("rocketmq2", "12345678", "token"))
    fields = request.ext_fields or {}
    assert fields["SecurityToken"] == "token"
    assert fields["Signature"] == "U90M64SdJ0mYwP92o41NNi/qZYI="


def test_a_query_by_unique_key_is_signed_as_every_broker_reads_it() -> None:
    request = RemotingCommand.request(12, ext={"topic": "TBW102", "_UNIQUE_KEY_QUERY": "true"})
    sign(request, KEY)
    assert (request.ext_fields or {})["Signature"] == "/u5P/wZUbhjanu4LM/UzEdo2u2I="
    assert request.version == 399


def test_no_secret_is_shown() -> None:
    key = AccessKey("ops", "the-secret", "the-token")
    assert "the-" not in repr(key)
    assert "the-" not in str(ClientSettings(access=ClusterAccess()).to_dict())
    assert "access" not in ClientSettings().to_dict()


async def test_every_style_of_call_is_signed(tmp_path: Path) -> None:
    file = tmp_path / "tools.yml"
    file.write_text("accessKey: rocketmq2\nsecretKey: 12345678\n")
    settings = RemotingSettings(access=ClusterAccess(KeyFile(file)))
    async with RemotingPeer() as peer, RemotingClient(settings=settings) as client:
        await client.oneway(peer.addr, RemotingCommand.request(105))
        await client.invoke(peer.addr, RemotingCommand.request(105))
        await client.invoke_async(peer.addr, RemotingCommand.request(105))
        signatures = [(each.ext_fields or {})["Signature"] for each in peer.received]
    assert signatures == ["Ou1T58RIcyZWaTIwzkhJZWn/Zvs="] * 3
