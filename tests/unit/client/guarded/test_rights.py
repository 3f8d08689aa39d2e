"""Refusals of a guarded broker in words: who asked, and which right to ask for."""

from __future__ import annotations

import pytest

from failback.client.remoting.connection import RemotingClient
from failback.client.remoting.guarded.signing import AccessKey, sign
from failback.client.remoting.guarded.signing import refusal as told
from failback.protocol.command import RemotingCommand
from tests.support.net.remoting_peer import RemotingPeer

ACL = "org.apache.rocketmq.acl.common.AclException: "
NO_RIGHT = "No default permission for "
OF_5 = "subject:User:ops has no permission to access "


def refusal(remark: str, code: int, *, key: str = "ops", **ext: str) -> str:
    request = RemotingCommand.request(code, ext=ext)
    if key:
        sign(request, AccessKey(key, "12345678"))
    return told(request.response(1, remark), request)


@pytest.mark.parametrize(
    ("said", "code", "ext", "words"),
    [
        ("No acl config for ops, org.x", 105, {}, "does not know the access key ops"),
        ("Check signature failed for accessKey=ops, x", 105, {}, "not the one it knows"),
        ("Need admin permission for request code=25", 25, {}, "admin: true"),
        (NO_RIGHT + "topic:o, x", 310, {"b": "o"}, "PUB on the topic o: ask for topicPerms: [o="),
        (NO_RIGHT + "group:g, x", 310, {"b": "%RETRY%g"}, "SUB on the group g: ask for groupP"),
        (NO_RIGHT + "topic:t, x", 11, {"topic": "t"}, "SUB on the topic t: ask for topic"),
        (NO_RIGHT + "topic:%RETRY%billing, x", 34, {}, "SUB on the group billing"),
        (OF_5 + "Group:g from sourceIp:1", 34, {}, "SUB on the group g"),
        (NO_RIGHT + "x", 999, {}, "no right to this (request code 999)"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_key_and_what_to_ask_for(
    said: str, code: int, ext: dict[str, str], words: str
) -> None:
    assert words in refusal(ACL + said, code, **ext)
    assert "ops" in refusal(ACL + said, code, **ext)


def test_who_has_no_key_is_told_to_give_one() -> None:
    for said in (f"{ACL}No accessKey is configured, org.x", "username cannot be null."):
        assert "--access-key-file" in refusal(said, 105, key="")
    assert "does not know the access key ops" in refusal("User:ops is not found.", 105)


@pytest.mark.parametrize(
    "remark", ["the broker[10.0.0.1] sending message is forbidden", "system busy", ""]
)
def test_other_answers_are_left_as_they_are(remark: str) -> None:
    assert refusal(remark, 310, b="orders") == ""


async def test_the_client_explains_what_it_was_answered() -> None:
    async with (
        RemotingPeer(lambda it: it.response(16, f"{ACL}No accessKey is configured")) as peer,
        RemotingClient() as client,
    ):
        for ask in (client.invoke, client.invoke_async):
            answer = await ask(peer.addr, RemotingCommand.request(105))
            assert "--access-key-file" in (answer.remark or "")
            assert client.problem.startswith(f"{peer.addr} refused: it asks for an access key")
