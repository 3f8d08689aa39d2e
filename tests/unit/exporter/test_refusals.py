"""What the exporter says of a guarded cluster that turns it away: each reason once."""

from __future__ import annotations

import logging

import pytest

from failback.analytics.exporter.survey import Surveyor
from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess
from failback.client.remoting.guarded.tls import Tls, TlsFiles
from failback.protocol.route import BrokerData, ClusterInfo
from tests.support.net.remoting_peer import RemotingPeer

REFUSAL = "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, x"


async def test_a_missing_key_is_said_once_with_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        RemotingPeer(lambda request: request.response(1, REFUSAL)) as broker,
        RemotingPeer() as namesrv,
        RemotingClient() as client,
    ):
        listed = BrokerData("c", "broker-a", {0: broker.addr})
        body = ClusterInfo({"broker-a": listed}, {"c": ["broker-a"]}).to_json()
        namesrv.answer = lambda request: request.response(0, body=body)
        surveyor = Surveyor([namesrv.addr], client=client)
        for _ in range(2):
            survey = await surveyor.survey()
    assert [each.up for each in survey.brokers] == [False]
    refused = [line for line in caplog.messages if "--access-key-file" in line]
    assert refused[0] == (
        f"{broker.addr} refused: it asks for an access key: give its file by --access-key-file"
    )
    assert len(refused) == 2, "and once that it does not answer, for that reason"


async def test_a_failed_handshake_is_the_reason_why_nobody_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = RemotingSettings(access=ClusterAccess(tls=Tls(TlsFiles())))
    async with (
        RemotingPeer(lambda _: b"") as peer,
        RemotingClient(settings=settings) as client,
    ):
        with caplog.at_level(logging.WARNING):
            await Surveyor([peer.addr], client=client).survey()
    (line,) = [each for each in caplog.messages if "does not answer" in each]
    assert line.startswith(peer.addr)
    assert "leave out --tls if it does not speak TLS" in line
