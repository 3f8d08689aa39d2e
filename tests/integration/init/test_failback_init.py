"""``failback-init`` with real children: exit codes, signals, kill, hold, records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.chaos.targets.kube.inside import announcement
from tests.support.common.polling import wait_until
from tests.support.processes.init_lab import InitLab, ended, gone, said

SLEEP = ("sleep", "600")
SAYS_SIGNALS = """
import signal, sys, time
def say(signum, frame):
    print(signal.Signals(signum).name, flush=True)
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), say)
print("ready", flush=True)
while True:
    time.sleep(0.05)  # a signal that comes just before pause() would be told with the next one
"""

SLOW_CHILD = """
import os, sys, time
from failback.init import __main__, supervisor

class LatePrctl(supervisor._Prctl):
    def __call__(self, option, value):
        parent = os.getppid()
        while option == supervisor._PR_SET_PDEATHSIG and os.getppid() == parent:
            time.sleep(0.01)
        super().__call__(option, value)

supervisor._Prctl = LatePrctl
sys.exit(__main__.main(sys.argv[1:]))
"""
KILLED_AT_THE_GATE = """
import os, signal, sys
from failback.init import __main__, records

def set_child_and_kill(self, record, write=records.RunDirectory.set_child):
    write(self, record)
    os.kill(record["pid"], signal.SIGKILL)
    os.waitid(os.P_PID, record["pid"], os.WEXITED | os.WNOWAIT)

records.RunDirectory.set_child = set_child_and_kill
sys.exit(__main__.main(sys.argv[1:]))
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[InitLab]:
    made = InitLab(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143)],
)
def test_it_ends_as_its_child_does(lab: InitLab, script: str, code: int) -> None:
    assert ended(lab.start("sh", "-c", script)) == code
    (death,) = lab.deaths()
    assert os.waitstatus_to_exitcode(death["wstatus"]) in (code, 128 - code)
    assert (death["n"], death["command"]) == (1, ["sh", "-c", script])


@pytest.mark.parametrize(("command", "code"), [("/no/such/command", 127), ("/etc", 126)])
def test_a_command_that_cannot_run_has_the_code_of_a_shell(
    lab: InitLab, command: str, code: int
) -> None:
    process = lab.start(command)
    assert ended(process) == code
    assert process.stderr is not None
    assert process.stderr.read().startswith(f"failback-init: {command}: ")


def test_it_passes_signals_on(lab: InitLab) -> None:
    names = ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT"]
    process = lab.start(sys.executable, "-c", SAYS_SIGNALS, *names)
    said(process, "ready")
    for name in names:
        process.send_signal(getattr(signal, name))
        said(process, name)
    assert lab.call("kill", "KILL").returncode == 0
    assert ended(process) == 137
    forwarded = [note for note in lab.deaths()[0]["sent"] if note["by"] == "forwarded"]
    assert [signal.Signals(note["signum"]).name for note in forwarded] == names
    assert {note["from_pid"] for note in forwarded} == {os.getpid()}


def test_the_child_has_default_signals_and_a_group_of_its_own(lab: InitLab) -> None:
    process = lab.start("grep", "-E", "^(Pid|NSpgid|SigBlk|SigIgn):", "/proc/self/status")
    output, _ = process.communicate(timeout=60)
    fields = dict(line.split(":\t") for line in output.splitlines())
    python_ignores = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert int(fields["SigBlk"], 16) == 0
    assert int(fields["SigIgn"], 16) & python_ignores == 0
    assert fields["NSpgid"] == fields["Pid"]


@pytest.mark.sample
def test_kill_signals_the_child_and_says_when(lab: InitLab) -> None:
    process = lab.start(*SLEEP)
    child = lab.child()
    expected = f"{child['pid']}:{child['ticks']}"
    done = lab.call("kill", "9", "--expect", expected, "--by", "fault f1")
    assert (done.returncode, ended(process)) == (0, 137)
    assert done.stderr == f"failback-init: {announcement(9, child['pid'], child['ticks'])}\n"
    receipt, (death,) = json.loads(done.stdout), lab.deaths()
    assert (receipt["pid"], receipt["ticks"], receipt["signum"]) == (
        child["pid"],
        child["ticks"],
        9,
    )
    assert receipt["issued"]["mono_ns"] <= receipt["returned"]["mono_ns"]
    assert death["started"]["mono_ns"] < death["sent_by"]["mono_ns"]
    assert death["sent_by"]["mono_ns"] <= receipt["issued"]["mono_ns"] <= death["mono_ns"]
    assert (death["pid"], death["ticks"]) == (child["pid"], child["ticks"])
    assert (death["signal"], death["code"], death["core"]) == (9, None, False)
    assert death["sent_by"]["by"] == "fault f1"


def test_a_kill_by_somebody_else_has_no_author(lab: InitLab) -> None:
    process = lab.start(*SLEEP)
    os.kill(lab.child()["pid"], signal.SIGKILL)
    assert ended(process) == 137
    (death,) = lab.deaths()
    assert (death["signal"], death["sent_by"], death["sent"]) == (9, None, [])


def test_a_recorded_signal_of_another_number_is_not_the_author(lab: InitLab) -> None:
    process = lab.start(sys.executable, "-c", SAYS_SIGNALS, "SIGTERM")
    said(process, "ready")
    assert lab.call("kill", "TERM", "--by", "a stop that was ignored").returncode == 0
    said(process, "SIGTERM")
    os.kill(lab.child()["pid"], signal.SIGKILL)
    assert ended(process) == 137
    (death,) = lab.deaths()
    assert [note["signum"] for note in death["sent"]] == [signal.SIGTERM]
    assert death["sent_by"] is None


def test_kill_refuses_another_child_than_the_expected(lab: InitLab) -> None:
    process = lab.start(*SLEEP)
    child = lab.child()
    wrong = f"{child['pid']}:{child['ticks'] + 1}"
    refused = lab.call("kill", "9", "--expect", wrong)
    assert refused.returncode == 4
    assert refused.stderr == (
        f"failback-init: expected {wrong}, the child is {child['pid']}:{child['ticks']}\n"
    )
    assert process.poll() is None
    assert lab.status()["child"]["state"] == "S"


def test_kill_finds_no_child_before_the_start_and_after_the_end(lab: InitLab) -> None:
    before = lab.call("kill", "9")
    assert ended(lab.start("true")) == 0
    after = lab.call("kill", "9", "--hold")
    assert (before.returncode, after.returncode) == (1, 1)
    assert before.stderr == f"failback-init: no child has been started in {lab.run_dir}\n"
    assert after.stderr.endswith(" has ended\n")
    assert not lab.status()["held"], "a kill that hit nothing must not keep the next child down"


def test_a_stop_and_its_end_are_on_record(lab: InitLab) -> None:
    lab.start(*SLEEP)
    child = lab.child()
    assert lab.call("kill", "STOP").returncode == 0
    wait_until(lambda: lab.status()["child"]["state"] == "T", "the child stops")
    wait_until(lambda: len(lab.status()["stops"]) == 1, "the stop is noted")
    assert lab.call("kill", "CONT").returncode == 0
    wait_until(lambda: len(lab.status()["stops"]) == 2, "the end of the stop is noted")
    stops = lab.status()["stops"]
    assert [(stop["event"], stop["signal"]) for stop in stops] == [
        ("stopped", signal.SIGSTOP),
        ("continued", None),
    ]
    assert os.WIFSTOPPED(stops[0]["wstatus"])
    assert {(stop["pid"], stop["ticks"]) for stop in stops} == {(child["pid"], child["ticks"])}
    assert lab.deaths() == []


def test_a_held_child_does_not_start_until_the_release(lab: InitLab) -> None:
    first = lab.start(*SLEEP)
    lab.child()
    assert lab.call("kill", "9", "--hold", "--by", "f1").returncode == 0
    assert ended(first) == 137

    second = lab.start(*SLEEP)  # what the kubelet does
    assert second.stderr is not None
    assert second.stderr.readline().startswith("failback-init: held by ")
    status = lab.status()
    assert (status["child"], status["held"], status["hold"]["by"]) == (None, True, "f1")

    assert lab.call("release").returncode == 0
    assert lab.child()["init"]["pid"] == second.pid
    assert lab.call("release").returncode == 0, "a second release is no error"
    assert [death["signal"] for death in lab.deaths()] == [9]


def test_a_signal_ends_the_wait_of_a_held_init(lab: InitLab) -> None:
    lab.run_dir.mkdir()
    (lab.run_dir / "hold").touch()  # by hand: any file holds
    process = lab.start(*SLEEP)
    assert process.stderr is not None
    process.stderr.readline()
    assert lab.status()["hold"] == {}
    process.terminate()
    assert ended(process) == 143
    assert lab.status()["death_count"] == 0


def test_a_hold_lets_a_running_child_live(lab: InitLab) -> None:
    process = lab.start(*SLEEP)
    lab.child()
    assert lab.call("hold", "--by", "a").returncode == 0
    assert lab.call("hold", "--by", "b").returncode == 0
    assert lab.status()["hold"]["by"] == "a"
    assert lab.call("kill", "TERM").returncode == 0
    assert ended(process) == 143


def test_a_hold_ends_by_itself_unless_it_is_renewed(lab: InitLab) -> None:
    lab.run_dir.mkdir()
    assert lab.call("hold", "--until", "600").returncode == 0
    assert lab.call("renew", "1.5").returncode == 0
    process = lab.start("echo", "ran")
    assert ended(process) == 0
    assert "held by" in process.stderr.read() if process.stderr else ""
    assert lab.status()["held"] is False
    assert lab.call("renew", "600").returncode == 1, "what is over is not renewed"


def test_a_stop_ends_by_itself(lab: InitLab) -> None:
    lab.start(*SLEEP)
    lab.child()
    assert lab.call("kill", "STOP", "--until", "600").returncode == 0
    wait_until(lambda: lab.child()["state"] == "T", "the child stands still")
    assert lab.call("renew", "1").returncode == 0
    wait_until(lambda: lab.child()["state"] != "T", "the child runs on")
    assert [each["event"] for each in lab.status()["stops"]] == ["stopped", "continued"]
    assert lab.call("renew", "600").returncode == 1


def test_a_stop_without_a_limit_stays_also_after_one_with_a_limit(lab: InitLab) -> None:
    lab.start(*SLEEP)
    lab.child()
    assert lab.call("kill", "STOP", "--until", "1").returncode == 0
    assert lab.call("kill", "CONT").returncode == 0
    wait_until(lambda: len(lab.status()["stops"]) == 2, "the child runs on")
    assert lab.call("kill", "STOP").returncode == 0
    wait_until(lambda: lab.child()["state"] == "T", "the child stands still")
    time.sleep(2)
    assert lab.child()["state"] == "T"


def test_no_signal_is_sent_that_could_not_be_recorded(lab: InitLab) -> None:
    lab.start(*SLEEP)
    lab.child()
    (lab.run_dir / "signals.jsonl").mkdir()
    refused = lab.call("kill", "9")
    assert refused.returncode == 4
    assert "no signal was sent" in refused.stderr
    assert lab.child()["state"] == "S"


def test_orphans_are_reaped_while_the_child_runs(lab: InitLab) -> None:
    # The middle shell ends at once, so the one that says its pid is an orphan, then a zombie.
    process = lab.start("sh", "-c", "(sh -c 'echo $$' &) ; exec sleep 600")
    assert process.stdout is not None
    orphan = int(process.stdout.readline())
    wait_until(lambda: not Path(f"/proc/{orphan}").exists(), "the orphan is reaped")
    assert process.poll() is None


def test_nothing_of_the_child_outlives_it(lab: InitLab) -> None:
    process = lab.start("sh", "-c", "setsid sleep 600 & sleep 600 & echo $!; exec sleep 600")
    assert process.stdout is not None
    left = int(process.stdout.readline())
    assert lab.call("kill", "9").returncode == 0
    assert ended(process) == 137
    assert gone(left)
    assert process.stdout.read() == "", "a process that is left would keep the pipe open"


def test_a_child_that_has_not_asked_yet_ends_with_its_init(lab: InitLab, tmp_path: Path) -> None:
    program = (sys.executable, "-c", SLOW_CHILD)
    process = lab.start("sh", "-c", f"touch {tmp_path}/began; exec sleep 600", program=program)
    wait_until((lab.run_dir / "child.json").exists, "the child's record")
    record = json.loads((lab.run_dir / "child.json").read_text())
    process.kill()
    ended(process)
    wait_until(lambda: gone(record["pid"]), "the child dies with its init")
    assert not (tmp_path / "began").exists()


def test_a_child_that_is_killed_before_it_is_the_command_is_on_record(lab: InitLab) -> None:
    process = lab.start(*SLEEP, program=(sys.executable, "-c", KILLED_AT_THE_GATE))
    assert ended(process) == 137
    (death,) = lab.deaths()
    assert (death["signal"], death["command"]) == (9, list(SLEEP))


def test_a_second_init_takes_nothing_over(lab: InitLab) -> None:
    lab.start(*SLEEP)
    child = lab.child()
    second = lab.start("true")
    assert ended(second) == 0
    assert second.stderr is not None
    assert second.stderr.read() == (
        f"failback-init: no kill, hold or death records: {lab.run_dir} belongs to another "
        "failback-init\n"
    )
    assert lab.status()["child"]["pid"] == child["pid"]
    assert lab.deaths() == []


def test_an_init_without_a_run_directory_still_runs_its_child(lab: InitLab) -> None:
    lab.environment["FAILBACK_RUN_DIR"] = "/proc/nowhere"
    process = lab.start("sh", "-c", "exit 5")
    assert ended(process) == 5
    assert process.stderr is not None
    assert process.stderr.read().startswith("failback-init: no kill, hold or death records: ")
    assert lab.call("kill", "9").returncode == 1


def test_a_record_that_cannot_be_written_costs_no_child(lab: InitLab) -> None:
    process = lab.start("sh", "-c", "read line; exit 4")
    assert ended(process) == 4  # standard input is empty
    (lab.run_dir / "deaths.jsonl").unlink()
    (lab.run_dir / "deaths.jsonl").mkdir()
    process = lab.start("sh", "-c", "exit 4")
    assert ended(process) == 4
    assert process.stderr is not None
    assert "a record is lost" in process.stderr.read()


def test_the_installed_command_is_the_same_program() -> None:
    script = Path(sys.executable).parent / "failback-init"
    shown = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("failback-init ")
    wrong = subprocess.run([script, "ls"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
