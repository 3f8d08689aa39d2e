"""A change of settings (25) is applied, stored and announced, or refused as a whole."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from failback.broker.config.config import BrokerConfig
from failback.broker.config.config_keys import DANGEROUS, FIXED_AT_START, NOT_OFFERED
from failback.protocol.calls import parse_properties, write_properties
from failback.protocol.codes import RequestCode
from failback.protocol.properties import properties_of
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab

pytestmark = pytest.mark.foreign

DEFAULTS = BrokerConfig.from_properties({}).to_properties()
KEYS = sorted(DEFAULTS)
REFUSED_AT_ALL = {"brokerConfigPath", "configBlackList"}
CHOICES = {
    "brokerPermission": "4",
    "brokerRole": "SYNC_MASTER",
    "flushDiskType": "SYNC_FLUSH",
    "failbackRules": "guarded",
    "failbackAclMode": "warn",
    "failbackTlsMode": "disabled",
    "failbackAdminFrom": "10.0.0.0/8",
    "failbackHaFrom": "10.0.0.0/8",
    "deleteWhen": "05",
    "messageDelayLevel": "1s 5s",
    "namesrvAddr": "127.0.0.1:9",
    "haMasterAddress": "127.0.0.1:9",
    "failbackMembers": "127.0.0.1:9",
    "failbackTimeScale": "2",
    "failbackDrainSeconds": "2",
}
BAD = {
    "brokerPermission": "9",
    "failbackMembers": "x",
    "namesrvAddr": "http://a:1",
    "fileReservedTime": "two days",
}


def other(key: str, value: str) -> str:
    """Return another value that the key takes."""
    if key in CHOICES:
        return CHOICES[key]
    if value in ("true", "false"):
        return "false" if value == "true" else "true"
    return str(int(value) + 1) if value.isdigit() else f"{value}x"


def may_change(key: str, value: str) -> bool:
    is_switched_on = value == "true" and key in NOT_OFFERED.keys() | DANGEROUS.keys()
    return key not in FIXED_AT_START | REFUSED_AT_ALL and not is_switched_on


class Seen:
    """What a broker says, has written, and announces."""

    def __init__(self, lab: BrokerLab, file: Path) -> None:
        self.lab, self.file = lab, file
        self.client: LabClient = lab.connect(("127.0.0.1", 50001))

    async def change(self, settings: dict[str, str]) -> tuple[int, str]:
        request = self.client.make(
            RequestCode.UPDATE_BROKER_CONFIG, None, write_properties(settings)
        )
        self.client.feed(request.encode())
        for _ in range(5):
            await self.client.turn()
        answer = self.client.answer_to(request)
        return answer.code, answer.remark or ""

    async def shown(self) -> dict[str, str]:
        return parse_properties((await self.client.ask(RequestCode.GET_BROKER_CONFIG)).body)

    def stored(self) -> dict[str, str]:
        return properties_of(self.file.read_bytes()).values

    def announced(self) -> int:
        """A registration under a version that name servers know announces nothing."""
        return self.lab.controller.topics.data_version.counter


@pytest.fixture
async def seen(tmp_path: Path) -> AsyncIterator[Seen]:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=broker-a\nmine=1\n")
    (tmp_path / "tls.properties").touch()  # without it useTLS cannot be switched on
    async with broker_lab(tmp_path, mine=1) as lab:
        lab.controller.config.file = file
        yield Seen(lab, file)


async def test_every_key_is_changed_whole_or_refused_whole(
    seen: Seen, record_property: Callable[[str, object], None]
) -> None:
    record_property("inputs", len(KEYS))
    for key in KEYS:
        before, written, version = await seen.shown(), seen.file.read_bytes(), seen.announced()
        value = other(key, before[key])
        code, remark = await seen.change({key: value})
        after = await seen.shown()
        if may_change(key, value):
            assert (key, code, remark) == (key, 0, "")
            assert {name for name in after if after[name] != before[name]} == {key}
            assert (key, seen.stored()[key]) == (key, value)
            assert BrokerConfig.load(seen.file, {}).to_properties()[key] == value
            continue
        assert (key, code) == (key, 16 if key in REFUSED_AT_ALL else 1)
        assert key in remark
        assert (after, seen.file.read_bytes(), seen.announced()) == (before, written, version)


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(25))
async def test_one_bad_setting_among_others_spoils_all(seen: Seen, seed: int) -> None:
    chance = random.Random(seed)
    before, written, version = await seen.shown(), seen.file.read_bytes(), seen.announced()
    live = [key for key in KEYS if may_change(key, other(key, before[key]))]
    settings = {key: other(key, before[key]) for key in chance.sample(live, 4)}
    late = sorted(FIXED_AT_START | {"brokerRole"})
    bad = chance.choice([*late, *BAD])
    settings[bad] = BAD.get(bad) or ("SLAVE" if bad == "brokerRole" else other(bad, before[bad]))
    if bad == "brokerRole":
        settings["brokerId"] = "1"
    items = list(settings.items())
    chance.shuffle(items)
    code, remark = await seen.change(dict(items))
    assert (bad, code) == (bad, 1)
    assert bad in remark
    after = await seen.shown()
    assert (after, seen.file.read_bytes(), seen.announced()) == (before, written, version)


async def test_a_role_changes_between_masters_only(seen: Seen) -> None:
    assert await seen.change({"brokerRole": "SYNC_MASTER"}) == (0, "")
    assert await seen.change({"brokerRole": "ASYNC_MASTER"}) == (0, "")
    code, remark = await seen.change({"brokerRole": "SLAVE", "brokerId": "1"})
    assert code == 1
    assert remark.startswith("brokerId, brokerRole: can't change while the broker runs")


async def test_what_stays_the_same_is_no_change(seen: Seen) -> None:
    """A tool may send back all that it was shown."""
    written = seen.file.read_bytes()
    settings = {
        key: value for key, value in (await seen.shown()).items() if key not in REFUSED_AT_ALL
    }
    assert await seen.change(settings) == (0, "")
    assert seen.file.read_bytes() == written


async def test_a_file_that_cannot_be_written_refuses_the_change(seen: Seen) -> None:
    before, version = await seen.shown(), seen.announced()
    seen.file.unlink()
    seen.file.mkdir()  # what nobody can write, root neither
    code, remark = await seen.change({"brokerPermission": "4", "slaveReadEnable": "true"})
    assert code == 1
    assert remark == f"{seen.file} can't be written: is a folder, not a file; nothing was changed"
    assert (await seen.shown(), seen.announced()) == (before, version)


async def test_a_change_that_is_too_large_is_refused(seen: Seen) -> None:
    code, remark = await seen.change({"regionId": "x" * 70_000})
    assert (code, remark) == (1, "settings: are more than 65536 bytes")


async def test_the_file_has_our_keys_only_where_somebody_set_them(seen: Seen) -> None:
    """A broker that took a free port, or all addresses, asks for neither at its next start."""
    assert (await seen.change({"failbackGuardAutoCreate": "true", "fileReservedTime": "24"}))[
        0
    ] == 0
    stored = seen.stored()
    ours = {key: value for key, value in stored.items() if key.startswith("failback")}
    assert ours == {"failbackGuardAutoCreate": "true"}
    assert (stored["fileReservedTime"], stored["brokerName"], stored["mine"]) == (
        "24",
        "broker-a",
        "1",
    )
    assert await seen.change({"fileReservedTime": "25"}) == (0, "")
    assert seen.stored()["failbackGuardAutoCreate"] == "true"
