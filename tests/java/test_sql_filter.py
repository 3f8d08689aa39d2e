"""SQL92 filters: ours and Apache's own filter module agree on every text and every message."""

from __future__ import annotations

import random
import subprocess

from failback.broker.filters.sql92 import compile_filter
from failback.protocol.errors import ProtocolError
from failback.protocol.message import encode_properties
from tests.support.common.polling import SCALE
from tests.support.java.apache import java, server_home
from tests.support.processes.child_process import ROOT
from tests.unit.broker.test_sql92 import MATCHES, MESSAGE, MISMATCHES, REFUSED

CASES = 10_000
VALUES = ["5", "-5", "+7", "2.5", "1e3", "x", "true", "False", "", " 5", "NaN", "3000000000", "5f"]
TERMS = ["a", "b", "c", "5", "-5", "- -5", "+5", "2.5", ".5", "5.", "1E3", "3000000000", "5L", "0"]
TERMS += ["'x'", "'5'", "'it''s'", "TRUE", "false", "NULL", "-a", "007", "0.0"]
TESTS = ["=", "<>", "<", "<=", ">", ">="]


def condition(chance: random.Random, depth: int = 3) -> str:
    """Return a text that mostly is a condition."""
    kind = chance.random()
    term = chance.choice(TERMS)
    if depth == 0 or kind < 0.4:
        return f"{term} {chance.choice(TESTS)} {chance.choice(TERMS)}"
    if kind < 0.5:
        negated = chance.choice(["", "NOT "])
        return f"{term} {negated}BETWEEN {chance.choice(TERMS)} AND {chance.choice(TERMS)}"
    if kind < 0.57:
        texts = ", ".join(chance.choices(["'x'", "'5'", "''", "'it''s'", "5"], k=2))
        return f"{term} {chance.choice(['', 'not '])}IN ({texts})"
    if kind < 0.64:
        return f"{term} IS {chance.choice(['', 'NOT '])}NULL"
    left, right = condition(chance, depth - 1), condition(chance, depth - 1)
    if kind < 0.85:
        return f"{left} {chance.choice(['AND', 'OR', 'and', '='])} {right}"
    if kind < 0.93:
        return f"{chance.choice(['NOT ', ''])}({left}) {chance.choice(['OR', 'AND', '<>'])} {right}"
    if kind < 0.97:
        words = left.split(" ")
        words[chance.randrange(len(words))] = chance.choice(["(", "NOT", "IS", "IN", "#", "/* */"])
        return " ".join(words)
    return f"{left} {chance.choice(['NOT', 'b', '-- note', ')', ','])} {right}"


def ours(text: str, message: dict[str, str]) -> str:
    try:
        return str(compile_filter(text)(message)).lower()
    except ProtocolError:
        return "refused"


def test_both_say_the_same_of_every_filter() -> None:
    chance = random.Random(498)
    cases = [(text, MESSAGE) for text in (*MATCHES, *MISMATCHES, *REFUSED) if text.strip()]
    for _ in range(CASES):
        message = {name: chance.choice(VALUES) for name in "abc" if chance.random() < 0.8}
        cases.append((condition(chance), message))
    lines = [f"{_hex(text)} {_hex(encode_properties(message))}" for text, message in cases]
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", f"{server_home()}/lib/*"]
    command += [str(ROOT / "tests/java/tools/SqlFilter.java")]
    done = subprocess.run(
        command,
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=180 * SCALE,
        check=True,
    )
    theirs = done.stdout.splitlines()
    assert len(theirs) == len(cases), done.stderr
    # A value of no characters is no property to Java's decoder.
    different = [
        (text, message, ours(text, _stored(message)), answer)
        for (text, message), answer in zip(cases, theirs, strict=True)
        if ours(text, _stored(message)) != answer
    ]
    assert different == []
    assert {answer: theirs.count(answer) > CASES // 50 for answer in theirs} == dict.fromkeys(
        ("true", "false", "refused"), True
    )


def _stored(message: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in message.items() if value}


def _hex(text: str) -> str:
    return text.encode().hex()
