"""The words of ``failback-init``."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.init.arguments import (
    Expected,
    Hold,
    Kill,
    Release,
    Renew,
    Request,
    Run,
    Show,
    Status,
    UsageError,
    parse,
)


@pytest.mark.parametrize(
    ("words", "request_"),
    [
        (["--", "failback", "broker"], Run(("failback", "broker"))),
        (["--", "--", "kill", "9"], Run(("--", "kill", "9"))),
        (["kill", "9"], Kill(9, None, False, "")),
        (["kill", "KILL"], Kill(9, None, False, "")),
        (["kill", "sigstop"], Kill(19, None, False, "")),
        (["kill", "9", "--expect", "7:123"], Kill(9, Expected(7, 123), False, "")),
        (["kill", "--expect=7:123", "9"], Kill(9, Expected(7, 123), False, "")),
        (["kill", "9", "--hold", "--by", "f1 of run 3"], Kill(9, None, True, "f1 of run 3")),
        (["hold"], Hold("")),
        (["hold", "--by", "f1"], Hold("f1")),
        (["hold", "--until", "90"], Hold("", 90.0)),
        (["kill", "STOP", "--until=1.5"], Kill(19, None, False, "", 1.5)),
        (["renew", "120"], Renew(120.0)),
        (["release"], Release()),
        (["status"], Status(False)),
        (["status", "--json"], Status(True)),
        (["--help"], Show("help")),
        (["--version"], Show("version")),
    ],
)
def test_words_become_one_request(words: list[str], request_: Request) -> None:
    assert parse(words) == request_


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "a command is missing: failback-init -- COMMAND"),
        (["--"], "nothing follows --"),
        (["failback", "broker"], "unknown word 'failback': a command to run stands behind --"),
        (["kill"], "kill takes one signal"),
        (["kill", "9", "15"], "kill takes one signal"),
        (["kill", "0"], "no signal has the number 0"),
        (["kill", "65"], "no signal has the number 65"),
        (["kill", "NINE"], "unknown signal 'NINE'"),
        (["renew"], "renew takes a number of seconds"),
        (["renew", "0"], "renew takes seconds, above 0 and at most 86400, not '0'"),
        (["hold", "--until", "nan"], "--until takes seconds, above 0 and at most 86400, not 'nan'"),
        (["kill", "9", "--expect", "7"], "--expect takes PID:STARTTIME, not '7'"),
        (["kill", "9", "--expect", "-7:1"], "--expect takes PID:STARTTIME, not '-7:1'"),
        (["kill", "9", "--expect"], "--expect needs a value"),
        (["kill", "9", "--force"], "unknown option '--force'"),
        (["hold", "now"], "hold: unexpected 'now'"),
        (["release", "now"], "release: unexpected 'now'"),
        (["status", "now"], "status: unexpected 'now'"),
        (["status", "--hold"], "unknown option '--hold'"),
    ],
)
def test_wrong_words_are_named(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(words)
    assert str(raised.value) == message


@given(st.lists(st.text(min_size=1), min_size=1))
def test_a_command_is_passed_on_untouched(command: list[str]) -> None:
    assert parse(["--", *command]) == Run(tuple(command))


@given(st.sampled_from(sorted(signal.Signals)))
def test_a_signal_has_a_number_and_two_names(found: signal.Signals) -> None:
    spellings = [str(int(found)), found.name, found.name.removeprefix("SIG").lower()]
    assert {parse(["kill", word]) for word in spellings} == {Kill(int(found), None, False, "")}
