"""The links of a pod that a fault of the network hits, and what it does to their packets. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

Link = Literal["replication", "clients", "nameserver"]
Direction = Literal["both", "in", "out"]
LINKS: Final[dict[str, Link]] = {
    "cut-replication": "replication",
    "cut-clients": "clients",
    "cut-nameserver": "nameserver",
}
"""Faults of the network, and the link that each hits."""
DROPPING: Final = {"in": "ingress device eth0", "out": "egress device eth0"}
ANSWERING: Final = {"in": "input", "out": "output"}
"""The hooks of rules, by direction. Rules in those of a card can neither reject nor mark."""
SNMP: Final = "net/snmp"
"""Counters of a network namespace, below ``/proc`` or ``/proc/PID``."""
NO_CARD: Final = "02:00:00:00:00:00"
"""The card that lost packets are sent to: no pod has it. The kernel would tell their sender of
packets that were dropped: TCP would then not repeat them, and a connect would fail at once."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What happens to packets of a link, as the pod sees their direction.

    All are dropped, or answered with RST (``reject``), or a random share is dropped, or those above
    a rate (``bytes_per_second``), or all are held back for a while (``delay_ms``).
    """

    link: Link
    direction: Direction = "both"
    reject: bool = False
    loss_ratio: float = 1.0
    bytes_per_second: int = 0
    delay_ms: float = 0.0
    seconds: float = 0.0
    """How long the fault lasts; a platform that is not asked to end the cut ends it later."""

    @property
    def total(self) -> bool:
        """Whether nothing passes."""
        return self.loss_ratio >= 1 and not self.bytes_per_second and not self.delay_ms

    @property
    def text(self) -> str:
        """What is done, for people."""
        if self.delay_ms:
            return f"all packets are {self.delay_ms:g} ms late"
        if self.bytes_per_second:
            return f"more than {self.bytes_per_second} bytes per second are dropped"
        share = "all packets are" if self.total else f"{self.loss_ratio:.1%} of the packets are"
        return f"{share} {'rejected' if self.reject else 'dropped'}"


def rules(cut: Cut, own: str, peers: Collection[str], seconds: float) -> str:
    """Return the nft rules of a cut in the pod's network namespace; they replace those before.

    Rules match as long as the pod's own address is in the set ``until``. The kernel takes it out
    after ``seconds``, so a cut ends also when its harness is gone.

    Args:
        own: The pod's address.
        peers: The addresses at the other end; of link ``clients`` those that are not.
    """
    others = f"{'!= ' if cut.link == 'clients' else ''}{{ {', '.join(sorted(peers))} }}"
    which = {
        "in": f"ip daddr @until ip saddr {others}",
        "out": f"ip saddr @until ip daddr {others}",
    }
    chosen = [name for name in which if cut.direction in ("both", name)]
    on_card = not cut.reject and not cut.delay_ms
    hooks = DROPPING if on_card else ANSWERING
    chains = [
        f"chain {name} {{ type filter hook {hooks[name]} priority -200; "
        f"{which[name]} {_condition(cut)} {_verdict(cut, name)}; }}"
        for name in chosen
    ]
    until = f"elements = {{ {own} timeout {round(seconds * 1000)}ms }}"
    return "\n".join(
        [
            no_rules(cut.link),
            f"table {'netdev' if on_card else 'inet'} {_table(cut.link)} {{",
            f"set until {{ type ipv4_addr; flags timeout; {until}; }}",
            *chains,
            "}",
        ]
    )


def resent_segments(text: str) -> int:
    """Return how many segments of TCP were sent again, by the text of ``/proc/net/snmp``."""
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])


def no_rules(link: str) -> str:
    """Return the nft commands that remove the rules of a link, whether there are any or not."""
    names = [f"{family} {_table(link)}" for family in ("inet", "netdev")]
    return "\n".join(f"table {name}\ndelete table {name}" for name in names)


def queue_of(link: str) -> int:
    """Return the number of the queue of packets that are held back, which is also their mark."""
    return 1 + list(map(str, LINKS.values())).index(link)


def _table(link: str) -> str:
    return f"failback_{link}"


def _condition(cut: Cut) -> str:
    """Which packets of the link are hit."""
    if cut.reject:
        return "tcp flags & rst == 0"  # a reset is an answer already
    if cut.bytes_per_second:
        rate = cut.bytes_per_second
        return f"limit rate over {rate} bytes/second burst {max(rate, 3000)} bytes"
    if cut.loss_ratio < 1:
        return f"numgen random mod 1000000 < {round(cut.loss_ratio * 1_000_000)}"
    return ""


def _verdict(cut: Cut, direction: str) -> str:
    if cut.delay_ms:
        return f"meta mark set {queue_of(cut.link)}"
    if cut.reject:
        return "reject with tcp reset"
    return "drop" if direction == "in" else f"ether daddr set {NO_CARD}"
