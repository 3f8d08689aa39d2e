"""``failback carry`` on a stopped master's store: what it writes, says and ends with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from failback.broker.store.log.files import OsFiles
from failback.carry.command import main
from failback.carry.master_store import MasterStore, read_conf
from failback.carry.offset_file import OffsetFile
from failback.protocol.command import RemotingCommand
from tests.support.carry.killed import carry_until
from tests.support.carry.stopped_master import (
    KEY,
    TOPIC,
    AnsweringSlave,
    RunningMaster,
    StoppedMaster,
    at,
)
from tests.support.net.ports import free_port_block


@pytest.fixture
def master(tmp_path: Path) -> StoppedMaster:
    found = StoppedMaster(tmp_path / "master")
    found.has(at(10), backup=at(8))
    return found


def test_a_master_gets_what_its_slave_knows_better(
    master: StoppedMaster, slave: AnsweringSlave, capsys: pytest.CaptureFixture[str]
) -> None:
    assert master.carry("--slave", slave.address) == 0
    assert master.loads == at(50)
    said = capsys.readouterr()
    assert said.out.startswith(
        "carry: raised 1 offsets of 1 groups by 40 messages; kept 0 lowered here, cut 0 at the "
        "end of the queue, 0 are larger here; asked 1 of 1 in "
    )
    assert said.err == ""


def test_a_second_run_touches_no_file(master: StoppedMaster, slave: AnsweringSlave) -> None:
    master.carry("--slave", slave.address)
    before = {path: path.stat().st_mtime_ns for path in master.file.parent.iterdir()}
    assert master.json("--slave", slave.address)["raised"] == []
    assert {path: path.stat().st_mtime_ns for path in master.file.parent.iterdir()} == before


def test_a_dry_run_says_the_same_and_writes_nothing(
    master: StoppedMaster, slave: AnsweringSlave, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(master.store.rglob("*"))
    assert master.carry("--slave", slave.address, "--dry-run") == 0
    assert (master.loads, sorted(master.store.rglob("*"))) == (at(10), before)
    assert f"{KEY} queue 0: 10 -> 50 (from {slave.address})" in capsys.readouterr().out


def test_the_answer_for_machines_has_every_part(
    master: StoppedMaster, slave: AnsweringSlave
) -> None:
    slave.offsets = {KEY: {0: 99}, "orders@audit": {0: 5}, "odd": {0: 1}}
    master.has({**at(10), "orders@audit": {0: 7}})
    found = master.json("--slave", slave.address)
    assert [(row["queue"], row["own"], row["wanted"]) for row in found["raised"]] == [(0, 10, 60)]
    assert {name: len(rows) for name, rows in found["left"].items()} == {
        "lowered": 0, "beyond": 1, "lower": 1, "odd": 1,
    }  # fmt: skip
    assert (found["asked"], found["silent"]) == ([slave.address], {})
    assert found["base"] == "consumerOffset.json"
    assert found["ms"].keys() == {"asked", "merged", "written"}


def test_other_fields_of_the_file_stay(master: StoppedMaster, slave: AnsweringSlave) -> None:
    master.file.write_text(
        '{"dataVersion":{"counter":7,"timestamp":5},"offsetTable":{"orders@billing":{0:10,1:3}},'
        '"pullOffsetTable":{"orders@billing":{0:4}},"new":[1,null,"x"]}'
    )
    assert master.carry("--slave", slave.address) == 0
    assert master.file.read_text() == (
        '{"dataVersion":{"counter":7,"timestamp":5},"new":[1,null,"x"],'
        '"offsetTable":{"orders@billing":{0:50,1:3}},"pullOffsetTable":{"orders@billing":{"0":4}}}'
    )


def test_owner_and_mode_of_the_file_stay(master: StoppedMaster, slave: AnsweringSlave) -> None:
    master.file.chmod(0o640)
    master.carry("--slave", slave.address)
    assert master.file.stat().st_mode & 0o777 == 0o640


def test_the_offset_of_a_disk_that_lost_its_end_is_cut(
    master: StoppedMaster, slave: AnsweringSlave, capsys: pytest.CaptureFixture[str]
) -> None:
    slave.offsets = at(75)
    assert master.carry("--slave", slave.address) == 0
    assert master.loads == at(60)
    assert "says 75, which is beyond the messages on this disk: it is cut to 60" in (
        capsys.readouterr().err
    )


def test_a_queue_entry_without_its_record_is_not_believed(
    master: StoppedMaster, slave: AnsweringSlave
) -> None:
    files = sorted((master.store / "commitlog").iterdir())
    for path in files[len(files) // 2 :]:
        path.unlink()
    left = sum(path.read_bytes().count(TOPIC.encode()) for path in files[: len(files) // 2])
    assert 10 < left < 50
    assert master.carry("--slave", slave.address) == 0
    assert master.loads == at(left)


@pytest.mark.parametrize(("field", "length"), [(0, 4), (4, 4), (20, 8)])
def test_a_record_of_another_size_kind_or_number_is_not_believed(
    master: StoppedMaster, slave: AnsweringSlave, field: int, length: int
) -> None:
    store = MasterStore(read_conf(master.conf))
    place = store.physical_offset_of(TOPIC, 0, 49)
    path = master.store / "commitlog" / f"{place // 1024 * 1024:020}"
    with path.open("r+b") as file:
        file.seek(place % 1024 + field)
        file.write(b"\7" * length)
    assert master.carry("--slave", slave.address) == 0
    assert master.loads == at(49)


def test_what_expired_here_is_no_bound(master: StoppedMaster, slave: AnsweringSlave) -> None:
    for path in sorted((master.store / "commitlog").iterdir())[:3]:
        path.unlink()
    master.has(at(1), backup=at(1))
    slave.offsets = at(3)
    assert master.carry("--slave", slave.address) == 0
    assert master.loads == at(3)


def test_a_topic_that_is_not_here_gets_nothing(
    master: StoppedMaster, slave: AnsweringSlave
) -> None:
    slave.offsets = {"gone@billing": {0: 5}, "../../x@billing": {0: 5}, f"{TOPIC}@g": {9: 5}}
    assert master.json("--slave", slave.address)["raised"] == []


@pytest.mark.parametrize("named", [True, False])
def test_a_slave_of_another_log_is_not_used(
    master: StoppedMaster, slave: AnsweringSlave, tmp_path: Path, named: bool
) -> None:
    slave.replica = StoppedMaster(tmp_path / "other", messages=0)
    slave.replica.add(*(b"%d" % (number + 5) for number in range(60)))
    how = ["--slave", slave.address] if named else ["--namesrv", _lists(slave)]
    assert master.carry(*how, "--strict") == 4
    assert master.loads == at(10)


@pytest.mark.parametrize(("named", "stands"), [(True, 50), (False, 10)])
def test_a_slave_that_shows_no_record_is_used_if_it_was_named(
    master: StoppedMaster, slave: AnsweringSlave, named: bool, stands: int
) -> None:
    del slave.answers[33]
    how = ["--slave", slave.address] if named else ["--namesrv", _lists(slave)]
    assert master.carry(*how) == 0
    assert master.loads == at(stands)


def test_the_slaves_of_a_name_server_are_asked_and_no_other_broker(
    master: StoppedMaster, slave: AnsweringSlave
) -> None:
    assert master.json("--namesrv", _lists(slave))["asked"] == [slave.address]
    assert master.loads == at(50)


def test_the_larger_of_two_slaves_and_a_file_is_taken(
    master: StoppedMaster, slave: AnsweringSlave, tmp_path: Path
) -> None:
    file = tmp_path / "saved.json"
    file.write_text('{"offsetTable":{"orders@billing":{0:55}},"accept_lower":{}}')
    with AnsweringSlave(master, at(40)) as second:
        slaves = ["--slave", slave.address, "--slave", second.address]
        assert master.json(*slaves, "--file", file)["raised"][0]["source"] == str(file)
    assert master.loads == at(55)


def test_what_the_master_lowered_before_it_stopped_stays(
    master: StoppedMaster, slave: AnsweringSlave, capsys: pytest.CaptureFixture[str]
) -> None:
    master.has(at(10), backup=at(50))
    assert master.carry("--slave", slave.address) == 0
    assert master.loads == at(10)
    assert "this master lowered it before it stopped: it stays at 10" in capsys.readouterr().err


def test_a_reset_on_the_slave_is_taken_for_the_groups_that_are_named(
    master: StoppedMaster, slave: AnsweringSlave, capsys: pytest.CaptureFixture[str]
) -> None:
    slave.offsets = {**at(4), "orders@audit": {0: 4}}
    master.has({**at(10), "orders@audit": {0: 10}})
    assert master.carry("--slave", slave.address, "--accept-lower", "billing") == 0
    assert master.loads == {**at(4), "orders@audit": {0: 10}}
    said = capsys.readouterr()
    assert "raised 0 offsets of 0 groups by 0 messages, lowered 1;" in said.out
    assert "group audit: 1 offsets are larger here by 6 messages, and stay" in said.err


# --- which file a broker would load ---------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"", b'{"offsetTable":{"orders@bil', b"\0\0\0", b"[]"])
def test_a_broken_file_gives_way_to_its_copy(
    master: StoppedMaster, slave: AnsweringSlave, content: bytes | None
) -> None:
    master.file.unlink()
    if content is not None:
        master.file.write_bytes(content)
    master.backup.write_text('{"offsetTable":{"orders@billing":{0:8},"orders@audit":{0:9}}}')
    assert master.json("--slave", slave.address)["base"] == "consumerOffset.json.bak"
    assert master.loads == {**at(50), "orders@audit": {0: 9}}


@pytest.mark.parametrize("content", [None, b"", b"torn{"])
def test_without_a_copy_a_broker_starts_empty_and_gets_the_slaves_table(
    master: StoppedMaster, slave: AnsweringSlave, content: bytes | None
) -> None:
    master.backup.unlink()
    master.file.unlink()
    if content is not None:
        master.file.write_bytes(content)
    assert master.json("--slave", slave.address)["base"] == ""
    assert master.loads == at(50)


def test_two_broken_files_are_refused_as_a_broker_would(
    master: StoppedMaster, slave: AnsweringSlave, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (master.file, master.backup):
        path.write_bytes(b"torn{")
    assert master.carry("--slave", slave.address) == 3
    assert "and consumerOffset.json.bak is none either" in capsys.readouterr().err


# --- what cannot be done --------------------------------------------------------------------------


@pytest.mark.parametrize(("strict", "code"), [([], 0), (["--strict"], 4)])
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"storeType": "defaultRocksDB"}, "storeType=defaultRocksDB keeps offsets in RocksDB"),
        ({"configManagerVersion": "v2"}, "configManagerVersion=v2 keeps offsets in RocksDB"),
    ],
)
def test_offsets_in_rocksdb_are_left_alone(
    tmp_path: Path,
    settings: dict[str, str],
    told: str,
    strict: list[str],
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    master = StoppedMaster(tmp_path, 5, **settings)
    assert master.carry("--slave", "127.0.0.1:1", *strict) == code
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"brokerRole": "SLAVE", "brokerId": 1}, "nothing to carry: this broker is a slave"),
        ({"enableControllerMode": "true"}, "nothing to carry: enableControllerMode is on"),
        ({"enableDLegerCommitLog": "true"}, "nothing to carry: enableDLegerCommitLog is on"),
    ],
)
def test_a_broker_that_needs_no_carry_is_left_alone(
    tmp_path: Path, settings: dict[str, object], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert StoppedMaster(tmp_path, 5, **settings).carry("--strict") == 0
    assert told in capsys.readouterr().out


@pytest.mark.parametrize(("strict", "code"), [([], 0), (["--strict"], 4)])
def test_a_slave_that_is_not_there_lets_the_master_start(
    master: StoppedMaster, strict: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert master.carry("--slave", "127.0.0.1:1", *strict) == code
    said = capsys.readouterr()
    assert "slave 127.0.0.1:1 is not used: connect to 127.0.0.1:1 failed" in said.err
    assert said.out == "carry: nothing was carried\n"
    assert master.loads == at(10)


def test_a_slave_that_comes_late_is_waited_for(master: StoppedMaster) -> None:
    port, late = free_port_block(1), ThreadPoolExecutor(1)

    def begin() -> AnsweringSlave:
        time.sleep(0.6)
        return AnsweringSlave(master, at(50), port=port)

    with late:
        coming = late.submit(begin)
        assert master.carry("--slave", f"127.0.0.1:{port}", "--wait", 30) == 0
        coming.result().close()
    assert master.loads == at(50)


def test_a_mistake_of_ours_lets_the_master_start(
    master: StoppedMaster, slave: AnsweringSlave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OffsetFile, "load", lambda _: 1 / 0)
    assert master.carry("--slave", slave.address) == 0
    assert master.carry("--slave", slave.address, "--strict") == 4


def test_no_slave_known_is_said(
    master: StoppedMaster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("FAILBACK_CONFIG", "/nowhere")
    assert master.carry("--strict") == 4
    assert "no slave of b in c is known: no name server is named" in capsys.readouterr().err


@pytest.mark.parametrize("there", [True, False])
def test_an_empty_disk_gets_no_offset(tmp_path: Path, there: bool, slave: AnsweringSlave) -> None:
    master = StoppedMaster(tmp_path / "new", messages=0)
    if there:
        (master.store / "commitlog").mkdir(parents=True)
        (master.store / "commitlog" / f"{0:020}").write_bytes(bytes(4096))
    assert master.carry("--slave", slave.address, "--strict") == 4
    assert not master.file.exists()


def test_a_running_broker_is_named(
    master: StoppedMaster, slave: AnsweringSlave, capsys: pytest.CaptureFixture[str]
) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0);"
            "print('held', flush=True); sys.stdin.read()",
            str(master.store / "lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    holder.stdout.readline()
    try:
        for words in ([], ["--dry-run"], ["--undo"]):
            assert master.carry("--slave", slave.address, *words) == 3
            assert f"is held by pid {holder.pid} " in capsys.readouterr().err
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()
    assert master.loads == at(10)


def test_a_broker_does_not_start_during_a_carry(
    master: StoppedMaster, slave: AnsweringSlave
) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from failback.broker.store.log.files import OsFiles; OsFiles().lock(Path(sys.argv[1]))"
    )
    told: list[str] = []

    def start(request: RemotingCommand) -> RemotingCommand | None:
        words = [sys.executable, "-c", code, str(master.store / "lock")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        told.append(done.stderr)
        return tell(request)

    tell = slave.answers[43]
    slave.answers[43] = start
    assert master.carry("--slave", slave.address) == 0
    assert f"{master.store / 'lock'} is held by pid {os.getpid()} " in told[0]
    OsFiles().lock(master.store / "lock")()


def test_a_full_disk_leaves_the_old_file(
    master: StoppedMaster,
    slave: AnsweringSlave,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    before = sorted(master.file.parent.iterdir())
    assert master.carry("--slave", slave.address, "--strict") == 4
    assert f"{master.file}: no space left on the disk" in capsys.readouterr().err
    assert (master.loads, sorted(master.file.parent.iterdir())) == (at(10), before)


# --- undo -----------------------------------------------------------------------------------------


def test_an_undo_brings_the_old_file_back(master: StoppedMaster, slave: AnsweringSlave) -> None:
    before = master.file.read_bytes()
    master.carry("--slave", slave.address)
    assert master.carry("--undo") == 0
    assert master.file.read_bytes() == before
    assert master.carry("--undo") == 3


def test_an_undo_after_a_start_needs_force(
    master: StoppedMaster, slave: AnsweringSlave, capsys: pytest.CaptureFixture[str]
) -> None:
    master.carry("--slave", slave.address)
    master.has(at(55))
    assert master.carry("--undo") == 3
    assert "a broker has written it since" in capsys.readouterr().err
    assert master.loads == at(55)
    assert master.carry("--undo", "--force") == 0
    assert master.loads == at(10)


# --- killed at every step -------------------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.parametrize("step", range(1, 31))
def test_a_kill_at_any_step_leaves_the_old_file_or_the_new_one(
    master: StoppedMaster, slave: AnsweringSlave, step: int
) -> None:
    carry_until(step, "--conf", master.conf, "--slave", slave.address)
    assert master.loads in (at(10), at(50))
    assert master.carry("--slave", slave.address) == 0
    assert master.loads == at(50)


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--conf: is missing"),
        (["--conf", "/nowhere/broker.conf"], "--conf: /nowhere/broker.conf cannot be read"),
        (["--conf", "CONF", "--slave", "10.0.0.12"], "--slave: has '10.0.0.12': the port is"),
        (["--conf", "CONF", "--file", "/nowhere/x"], "--file: /nowhere/x is no table of offsets"),
        (["--conf", "CONF", "--file", "CONF"], "is no table of offsets"),
        (["--conf", "CONF", "--wait", "-1"], "must be seconds, 0 or more"),
        (["--conf", "CONF", "--"], "COMMAND: stands behind --"),
        (["--conf", "CONF", "sh", "mqbroker"], "COMMAND: stands behind --"),
        (["--conf", "CONF", "stray", "--", "sh"], "COMMAND: stands behind --"),
    ],
)
def test_a_mistake_is_one_sentence_and_ends_with_2(
    master: StoppedMaster, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(master.conf) if word == "CONF" else word for word in words]
    try:
        code = main(given)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("reached", [True, False])
def test_the_command_behind_it_takes_its_place_and_its_exit_code_counts(
    master: StoppedMaster, slave: AnsweringSlave, reached: bool
) -> None:
    address = slave.address if reached else "127.0.0.1:1"
    words = ["--conf", str(master.conf), "--slave", address, "--", "sh", "-c", "echo $$; exit 5"]
    child = subprocess.Popen(
        [sys.executable, "-m", "failback.carry", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    out, _ = child.communicate()
    assert out.splitlines()[-1] == str(child.pid)
    assert child.returncode == 5
    assert master.loads == at(50 if reached else 10)


def test_beside_the_command_a_top_up_waits_for_the_broker(
    tmp_path: Path, slave: AnsweringSlave
) -> None:
    port = free_port_block(1)
    master = StoppedMaster(tmp_path / "topped-up", listenPort=port)
    master.has(at(10))
    words = ["--conf", str(master.conf), "--slave", slave.address, "--top-up", "60"]
    command = ["sh", "-c", 'read -r child </proc/$$/task/$$/children; echo "${child}started"']
    with subprocess.Popen(
        [sys.executable, "-m", "failback.carry", *words, "--", *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("carry: raised 1 offsets")
        assert child.stdout.readline() == "started\n"  # with no child that it does not know
        slave.offsets = at(57)
        with RunningMaster(port, at(50)) as running:
            assert child.stdout.readline().startswith("carry: raised 1 offsets of 1 groups by 7 ")
            assert running.offsets == at(57)


def test_a_strict_carry_that_could_not_starts_nothing(master: StoppedMaster) -> None:
    assert master.carry("--slave", "127.0.0.1:1", "--strict", "--", "false") == 4


def test_the_offsets_of_lmq_are_in_a_file_of_their_own(
    tmp_path: Path,
) -> None:
    master = StoppedMaster(tmp_path / "lmq", enableLmq="true")
    path = master.file.with_name("lmqConsumerOffset.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"lmqOffsetTable":{"%LMQ%a@b":5},"offsetTable":{"orders@billing":{0:10}}}')
    with AnsweringSlave(master, at(50)) as slave:
        assert master.carry("--slave", slave.address) == 0
    assert json.loads(path.read_text().replace("0:", '"0":'))["lmqOffsetTable"] == {"%LMQ%a@b": 5}
    assert '"orders@billing":{0:50}' in path.read_text()


def _lists(slave: AnsweringSlave) -> str:
    """Let the slave answer as a name server, too; return its address as such."""
    pair = {"cluster": "c", "brokerName": "b", "brokerAddrs": {0: "127.0.0.1:2", 1: slave.address}}
    other = {"cluster": "c", "brokerName": "x", "brokerAddrs": {1: "127.0.0.1:3"}}
    body = {
        "brokerAddrTable": {"b": pair, "x": other},
        "clusterAddrTable": {"c": ["b", "x"]},
    }
    slave.answers[106] = lambda request: request.response(0, body=json.dumps(body).encode())
    return slave.address


def test_a_copied_store_needs_no_lock_file(master: StoppedMaster, slave: AnsweringSlave) -> None:
    (master.store / "lock").unlink(missing_ok=True)
    assert master.carry("--slave", slave.address) == 0
    assert master.loads == at(50)
    shutil.rmtree(master.store)
