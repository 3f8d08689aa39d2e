"""Addresses from which requests need no access key, as plain_acl.yml writes them. Pure.

=========================  ====================================================================
written                    matches
=========================  ====================================================================
nothing                    no address
``*``, ``*.*.*.*``         every address; so does ``*:*:*:*:*:*:*:*``
``10.1.2.3``, ``2::ab``    this address
``10.1.2.3,10.1.2.4``      these addresses
``10.1.2.{3,4}``           10.1.2.3 and 10.1.2.4; the last part alone may be a list
``10.1.*.*``, ``10.1.2-9.*`` addresses whose first part with ``*`` or a range is in it; what follows
                           that part is not compared
``2::5:1-200:*``           the same for IPv6, with hexadecimal numbers
=========================  ====================================================================

Source: RemoteAddressStrategyFactory and AclUtils, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from failback.client.remoting.addresses import canonical

Matcher = Callable[[str], bool]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_ANY: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_RANGE: Final = re.compile(r"\*|([0-9A-Fa-f]+)-([0-9A-Fa-f]+)")


def every_address(_host: str) -> bool:
    return True


@lru_cache(maxsize=4096)
def plain_host(host: str) -> str:
    """Return an address as it is compared: an IPv4 address inside of an IPv6 one as IPv4."""
    return canonical(host) or host


def matcher(text: str) -> Matcher:
    """Return what tells whether a host of :func:`plain_host` is one of the written addresses.

    Raises:
        ValueError: They are no addresses: says which.
    """
    text = text.strip()
    if not text:
        return lambda _host: False
    if text in _ANY:
        return every_address
    if text.endswith("}"):
        head, _, last = text.removesuffix("}").partition("{")
        if not head.endswith((".", ":")):
            raise ValueError(f"{text}: only the last part of an address may be a list in braces")
        return _one_of(head + each for each in last.split(",") if each)
    if "," in text:
        return _one_of(each for each in text.split(",") if each)
    if "*" in text or "-" in text:
        return _in_range(text)
    return _one_of([text])


def _one_of(texts: Iterable[str]) -> Matcher:
    return frozenset(str(_address(each)) for each in texts).__contains__


def _address(text: str) -> _Address:
    try:
        return ipaddress.ip_address(text.strip())
    except ValueError:
        raise ValueError(f"{text} is no address") from None


def _in_range(text: str) -> Matcher:
    is_v6 = ":" in text
    parts = [part.strip() for part in _expanded(text)] if is_v6 else text.split(".")
    base, most, count = (16, 0xFFFF, 8) if is_v6 else (10, 255, 4)
    if len(parts) != count:
        raise ValueError(f"{text} has {len(parts)} parts, an address has {count}")
    at = next((at for at, part in enumerate(parts) if at and _RANGE.fullmatch(part)), None)
    if at is None:
        raise ValueError(f"{text}: * or a range such as 1-20 may be any part but the first")
    if is_v6 and any(part != "*" for part in parts[at + 1 :]):
        raise ValueError(f"{text}: behind a range of an IPv6 address only * may follow")
    found = _RANGE.fullmatch(parts[at])
    assert found is not None
    try:
        head = [int(part, base) for part in parts[:at]]
        least, last = (int(each, base) for each in found.groups(default="0"))
    except ValueError:
        raise ValueError(f"{text}: a part is no number") from None
    if found[1] is None:
        last = most
    if max(*head, last) > most or least > last:
        raise ValueError(f"{text}: a part is above {most}, or a range ends before it begins")

    def matches(host: str) -> bool:
        if (":" in host) != is_v6:
            return False
        exploded = _address(host).exploded.split(":" if is_v6 else ".")
        numbers = [int(part, base) for part in exploded]
        return numbers[:at] == head and least <= numbers[at] <= last

    return matches


def _expanded(text: str) -> list[str]:
    """Return the eight parts of an IPv6 address in which ``::`` stands for zeros."""
    left, doubled, right = text.partition("::")
    before = left.split(":") if left else []
    after = right.split(":") if right else []
    zeros = ["0"] * (8 - len(before) - len(after)) if doubled else []
    return [*before, *zeros, *after]
