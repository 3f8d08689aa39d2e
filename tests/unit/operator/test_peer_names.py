"""An address outlives its pod: another broker that got it is not the one that is meant."""

from __future__ import annotations

from failback.operator.brokers.peers import Peers, Target
from failback.operator.metrics import Metrics
from failback.operator.planning.observed.observed import Broker
from tests.support.net.fake_remoting import FakeBroker


async def test_a_stranger_at_the_address_of_a_member_is_silence() -> None:
    metrics = Metrics(version="1", kopf="1", kubernetes="1")
    clock = iter(range(0, 100_000, 1000))
    peers = Peers(metrics, clock=lambda: float(next(clock)))
    with FakeBroker() as broker:
        broker.config |= {"brokerClusterName": "orders", "brokerName": "orders-0"}
        names = {"brokerClusterName": "orders", "brokerName": "orders-0"}
        target = Target(broker.address, "uid-1", is_master=True, names=names)
        try:
            await peers.refresh_pair([target], fast=False)
            known = peers.broker(target)
            assert known.config is not None
            assert known.offsets == {}
            broker.config["brokerName"] = "stock-0"
            await peers.refresh_pair([target], fast=False)
            silent = Broker(broker.address, problem=f"{broker.address} is another broker")
            assert peers.broker(target) == silent
            await peers.refresh_pair([target], fast=False)
            assert peers.broker(target) == silent
            broker.config["brokerName"] = "orders-0"
            await peers.refresh_pair([target], fast=False)
            assert peers.broker(target).config is not None
            assert peers.broker(target).offsets == {}
        finally:
            await peers.close()


async def test_a_master_that_comes_back_is_compared_with_its_slave_at_once() -> None:
    metrics = Metrics(version="1", kopf="1", kubernetes="1")
    now = 0.0
    peers = Peers(metrics, clock=lambda: now)
    master, slave = FakeBroker(), FakeBroker(broker_id=1)
    port = int(master.address.rpartition(":")[2])
    targets = [
        Target(master.address, "uid-0", is_master=True),
        Target(slave.address, "uid-1", is_master=False),
    ]
    try:
        await peers.refresh_pair(targets, fast=False)
        master.close()
        now += 31.0
        await peers.refresh_pair(targets, fast=False)
        assert peers.broker(targets[0]).config is None
        slave.offsets = {"PAID@billing": {0: 7}}
        master = FakeBroker(port=port)
        now += 2.0  # neither state nor tables of one that answers would be due
        await peers.refresh_pair(targets, fast=False)
        assert peers.broker(targets[0]).offsets == {}
        assert peers.broker(targets[1]).offsets == {"PAID@billing": {0: 7}}
    finally:
        master.close()
        slave.close()
        await peers.close()
