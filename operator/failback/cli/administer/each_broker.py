"""One question to several brokers: their answers, and why an answer is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import typer

from failback.cli.shared.asking import NotThere
from failback.cli.shared.errors import FAIL, INCONCLUSIVE, fail, worst
from failback.cli.shared.output import note
from failback.common.text import visible
from failback.protocol.codes import ResponseCode
from failback.protocol.errors import (
    BrokerError,
    FailbackError,
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeout,
    UnreadableAnswer,
)
from failback.protocol.route import BrokerData

Row = dict[str, Any]
_AT_ONCE: Final = 32


class Asked(NamedTuple):
    """One broker to ask. Without an address no broker of that name and id is registered."""

    broker: str
    broker_id: int
    address: str

    @property
    def said_by(self) -> str:
        """Address and role of the broker that answered, for a table."""
        role = "master" if self.broker_id == 0 else f"slave {self.broker_id}"
        return f"{self.address} ({role})"

    @property
    def name(self) -> str:
        return f"{self.broker} ({self.address})" if self.address else self.broker


@dataclass(slots=True)
class Told:
    """Rows that brokers answered with, and a line for each broker without an answer."""

    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """Lines about what is odd without being a problem."""

    def miss(self, who: str, why: str, code: int = FAIL) -> None:
        """Add a line about what was not done, or not found out."""
        self.problems.append(f"{who}: {why}" if who else why)
        self.codes.append(code)

    def end(self) -> None:
        """Print remarks and problems; end with an exit code if there is a problem.

        Raises:
            Exit: With the worst code of the problems.
        """
        for line in self.remarks:
            note(line)
        for line in self.problems:
            fail(visible(line))
        if self.problems:
            raise typer.Exit(worst(self.codes))


Question = Callable[[Asked, Told], Awaitable[None]]
"""Asks one broker and adds its rows; rows added before a failure are kept."""


async def of_each(brokers: Iterable[Asked], question: Question) -> Told:
    """Ask all brokers side by side; rows and lines are in the order of ``brokers``."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def ask(broker: Asked) -> Told:
        told = Told()
        async with turn:
            try:
                if not broker.address:
                    raise NotThere("has no master now")
                await question(broker, told)
            except FailbackError as error:
                why, code = why_missing(error)
                told.miss(broker.name, why, code)
        return told

    whole = Told()
    for told in await asyncio.gather(*map(ask, brokers)):
        whole.rows += told.rows
        whole.problems += told.problems
        whole.codes += told.codes
    return whole


def why_missing(error: FailbackError) -> tuple[str, int]:
    """Return why a broker gave no answer, and the exit code for it."""
    if isinstance(error, RemotingConnectError):
        return f"cannot be reached: {error.why}", INCONCLUSIVE
    if isinstance(error, RemotingTimeout):
        took = f"{error.timeout_ms / 1000:g} s"
        return f"took the question and gave no answer within {took}", INCONCLUSIVE
    if isinstance(error, RemotingSendError):
        return f"ended the connection without an answer: {error.why}", INCONCLUSIVE
    if isinstance(error, UnreadableAnswer):
        return f"answered what cannot be read: {error.problem}", INCONCLUSIVE
    if isinstance(error, BrokerError):
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return "does not know this request: is it of another version?", INCONCLUSIVE
        said = error.remark.strip().partition("\n")[0] or f"code {error.code}"
        return f"refused: {said}", FAIL
    return str(error), getattr(error, "exit_code", FAIL)


def masters_of(brokers: Sequence[BrokerData]) -> list[Asked]:
    """Return the master of each pair, by name; one without a master has no address."""
    return [
        Asked(each.broker_name, 0, each.broker_addrs.get(0, ""))
        for each in sorted(brokers, key=lambda each: each.broker_name)
    ]


def members_of(brokers: Iterable[BrokerData]) -> list[Asked]:
    """Return of each pair the master, else the slave with the least id, by name."""
    return [
        Asked(each.broker_name, number, each.broker_addrs.get(number, ""))
        for each in sorted(brokers, key=lambda each: each.broker_name)
        for number in [min(each.broker_addrs, default=0)]
    ]


def all_members_of(brokers: Iterable[BrokerData]) -> list[Asked]:
    """Return every member of each pair."""
    return [
        Asked(each.broker_name, number, addr)
        for each in sorted(brokers, key=lambda each: each.broker_name)
        for number, addr in sorted(each.broker_addrs.items())
    ]


def lost_topic(topic: str) -> NotThere:
    """Return the error of a broker that lacks a topic which the name server lists there."""
    return NotThere(f"has no topic {topic}, though the name server lists it there")
