"""Exporter and dashboard go on beside a broker that does not answer, or answers nonsense."""

from __future__ import annotations

import time

import pytest

from failback.analytics.dashboard.sources.brokers import look_at
from failback.analytics.dashboard.sources.clusters import MemberRef
from failback.analytics.exporter.figures import figures_of
from failback.analytics.exporter.pair_history import History
from failback.analytics.exporter.survey import Surveyor
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from tests.support.common.polling import SCALE
from tests.support.net.two_pairs import FAULTS, TwoPairs

pytestmark = pytest.mark.foreign
PARTLY = ("lost the topic", "empty answers")
"""What is an answer, too: a broker without that topic, or without any figure."""


@pytest.mark.parametrize("fault", FAULTS)
async def test_figures_are_of_the_broker_that_answers(fault: str) -> None:
    timeout_ms = 800 * SCALE
    with TwoPairs() as pairs:
        history = History()
        async with RemotingClient() as client:
            surveyor = Surveyor([pairs.namesrv.address], client=client, timeout_ms=timeout_ms)
            history.look(await surveyor.survey())
            FAULTS[fault](pairs.b)
            began = time.monotonic()
            survey = await surveyor.survey()
            history.look(survey)
        assert time.monotonic() - began < 10 * SCALE, "a bounded time"
    of_b: dict[str, float] = {}
    names = set()
    for metric in figures_of(survey, history).families():
        for sample in metric.samples:
            text = " ".join(sample.labels.values())
            if "broker-b" in text:
                of_b[sample.name] = sample.value
            elif "broker-a" in text:
                names.add(sample.name)
    assert {"rocketmq_message_accumulation", "failback_exporter_up"} <= names
    if fault in PARTLY:
        assert "rocketmq_message_accumulation" not in of_b
    else:
        assert of_b == {"failback_exporter_up": 0.0}, "no figure stays at its last value"


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_page_names_what_a_broker_did(fault: str) -> None:
    with TwoPairs() as pairs:
        member = MemberRef("b-0", "broker-b", pairs.b.address, 0)
        async with AdminClient(timeout_ms=800 * SCALE) as admin:
            before = await look_at(admin, member, None)
            assert before.answered, before.problem
            FAULTS[fault](pairs.b)
            after = await look_at(admin, member, before)
    if fault not in PARTLY:
        assert after.problem
        assert after.offsets == before.offsets, "what it said last"
