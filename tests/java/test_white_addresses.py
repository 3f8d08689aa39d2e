"""Which addresses are white, beside RemoteAddressStrategyFactory, equal in 4.9.7 and 4.9.8."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

from failback.client.remoting.access.white_addresses import matcher, plain_host
from tests.support.java.apache import java, server_home

PROGRAM = Path(__file__).parent / "tools" / "WhiteAddresses.java"
WRITTEN = (
    *("", " ", "*", "*.*.*.*", "*:*:*:*:*:*:*:*", "10.1.2.3", "10.1.2.03", "10.1.2", "10.1.2.256"),
    *("10.1.2.*", "10.1.*.*", "10.*.*.*", "10.1.*", "10.*", "10.1.*.3", "*.1.2.3", "10.1.2.3-9"),
    *("10.1.2-9.*", "10.1-2.2.3", "10.1.2.9-3", "10.1.2.3-300", "10.1.2.-9", "10.1.2.{3,4}"),
    *("10.1.{2,3}.4", "10.1.2.{3}", "{10.1.2.3}", "10.1.2.3,10.1.2.4", "10.1.2.3,hosts", "hosts"),
    *("2::ab", "2::AB", "2:0:0:0:0:0:0:ab", "2::5:78:1-200:*", "2::5:78:1-200", "2::5:78:2:*"),
    *("2::{ab,cd}", "2::ab,2::cd", "2::*:5", "2::g:*", "::1", "2::5:1-2:78", "2::5:9-1"),
)
HOSTS = (
    *("10.1.2.3", "10.1.2.4", "10.1.2.9", "10.1.2.10", "10.1.9.3", "10.2.2.3", "11.1.2.3"),
    *("110.1.2.3", "10.1.23.4", "2::ab", "2::cd", "::1", "2::5:78:2:9", "2::5:78:200:1"),
    *("2::5:78:201:1", "2::5:78:2", "2::5:78:ffff", "2:0:0:0:5:78:1:0"),
)
STRICTER = {"2::g:*"}
"""Refused here, where the entry is named; Apache's matches nothing."""


def ours(written: str, host: str) -> str:
    try:
        return "yes" if matcher(written)(plain_host(host)) else "no"
    except ValueError:
        return "error"


def test_white_addresses_are_those_of_apache() -> None:
    pairs = list(itertools.product(WRITTEN, HOSTS))
    command = [java(), "-cp", f"{server_home()}/lib/*", str(PROGRAM)]
    lines = "".join(f"{written}|{host}\n" for written, host in pairs)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    theirs = dict(zip(pairs, done.stdout.split(), strict=True))
    assert {"yes", "no", "error"} == set(theirs.values())
    different = {
        pair: (theirs[pair], ours(*pair))
        for pair in pairs
        if theirs[pair] != ours(*pair) and pair[0] not in STRICTER
    }
    assert different == {}
