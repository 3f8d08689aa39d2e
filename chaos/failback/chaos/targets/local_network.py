"""Rules in the network namespaces of a local cluster, and what its kernel counts there.

A pod's rules lie in one table per link, named after it. Nothing else in the namespace is touched.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

from failback.chaos.cluster.lease import Renewal
from failback.chaos.cluster.link import SNMP, Cut, no_rules, queue_of, resent_segments, rules
from failback.chaos.cluster.view import LIMIT_SECONDS
from failback.chaos.cluster.wire import split_address
from failback.chaos.errors import GuardRefused, TargetError
from failback.common.programs import find_program
from failback.common.text import why

CHAINS: Final = ("INPUT", "OUTPUT")
DELAY: Final = "failback.chaos.targets.delay"
_HOW: Final = (
    "start the cluster as root with: failback up FILE --isolate-network "
    "(it needs the Debian packages nftables, iptables and iproute2)"
)


class LocalNetwork:
    """Cuts links of pods, which their addresses name. ``view`` asks the runtime what runs."""

    def __init__(self, view: Callable[[], Mapping[str, Any]]) -> None:
        self._view = view
        self._cuts: dict[str, tuple[str, Cut]] = {}
        self._delays: dict[str, subprocess.Popen[str]] = {}
        self._renewal = Renewal(lambda key: self._load(*self._cuts[key]))

    def require(self) -> None:
        """Raise ``GuardRefused`` when links cannot be cut here."""
        if not self._view().get("prober"):
            raise GuardRefused("NetworkIsolated", f"the pods share one network: {_HOW}")
        if os.geteuid() != 0 or None in map(find_program, ("nsenter", "nft", "iptables")):
            problem = "rules are set by root, with nft and iptables (Debian packages of that name)"
            raise GuardRefused("NetworkIsolated", problem)

    def cut(self, address: str, cut: Cut) -> None:
        key = f"{address}/{cut.link}"
        if cut.delay_ms:
            self._delay(key, address, cut)
        self._load(address, cut)
        self._cuts[key] = address, cut
        self._renewal.add(key)

    def join(self, address: str, link: str) -> None:
        key = f"{address}/{link}"
        self._renewal.drop(key)
        pod = self._pod(self._view(), address)
        _run(pod, "nft", "-f", "-", stdin=no_rules(link))
        _unqueue(pod, link)
        if key in self._delays:
            self._delays.pop(key).communicate()

    def resent(self, address: str) -> int:
        pid = self._pod(self._view(), address).get("pid")
        try:
            return resent_segments(Path(f"/proc/{pid}/{SNMP}").read_text(encoding="ascii"))
        except OSError as error:
            raise TargetError(f"counters of {address}", why(error)) from error

    def close(self) -> None:
        self._renewal.close()
        for each in self._delays.values():
            each.communicate()

    def _delay(self, key: str, address: str, cut: Cut) -> None:
        """Start what holds marked packets back, and have the kernel hand them to it."""
        pod = self._pod(self._view(), address)
        _unqueue(pod, cut.link)
        for chain in CHAINS:
            _run(pod, "iptables", *_queueing("-A", chain, cut.link))
        words = [sys.executable, "-m", DELAY, str(queue_of(cut.link)), str(cut.delay_ms)]
        child = subprocess.Popen(
            _inside(pod, *words), stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True
        )
        assert child.stdout is not None
        if not child.stdout.readline():
            raise TargetError(f"delay of {pod['pod']}", child.communicate()[1].strip()[-200:])
        self._delays[key] = child

    def _load(self, address: str, cut: Cut) -> None:
        view = self._view()
        pod = self._pod(view, address)
        if cut.link == "clients":
            peers = {_host(each["address"]) for each in _pods(view)} | {str(view["prober"])}
        elif cut.link == "nameserver":
            peers = {_host(each["address"]) for each in view["nameserver_pods"]}
        else:
            pair = [each for each in _pods(view) if each["pair"] == pod["pair"]]
            peers = {_host(each["address"]) for each in pair} - {_host(address)}
        if not peers:
            raise TargetError(f"cut {cut.link} of {pod['pod']}", "the link has no other end here")
        _run(pod, "nft", "-f", "-", stdin=rules(cut, _host(address), peers, LIMIT_SECONDS))

    def _pod(self, view: Mapping[str, Any], address: str) -> Mapping[str, Any]:
        for pod in _pods(view):
            if pod["address"] == address:
                return pod
        raise TargetError(f"pod at {address}", "the runtime does not know it")


def _inside(pod: Mapping[str, Any], program: str, *words: str) -> list[str]:
    """Return a command in the network namespace of a pod."""
    where = f"--net=/run/netns/{pod['network_namespace']}"
    return [
        find_program("nsenter") or "nsenter",
        where,
        "--",
        find_program(program) or program,
        *words,
    ]


def _run(pod: Mapping[str, Any], *command: str, stdin: str = "") -> None:
    what = f"{command[0]} in {pod['pod']}"
    try:
        done = subprocess.run(
            _inside(pod, *command), input=stdin, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise TargetError(what, why(error)) from error
    if done.returncode:
        raise TargetError(what, done.stderr.strip().partition("\n")[0])


def _unqueue(pod: Mapping[str, Any], link: str) -> None:
    for chain in CHAINS:
        with contextlib.suppress(TargetError):  # there is none
            _run(pod, "iptables", *_queueing("-D", chain, link))


def _queueing(change: str, chain: str, link: str) -> list[str]:
    number = str(queue_of(link))
    match = ["-t", "mangle", change, chain, "-m", "mark", "--mark", number]
    return [*match, "-j", "NFQUEUE", "--queue-num", number, "--queue-bypass"]


def _pods(view: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The pods of all clusters: none of them is a client."""
    pairs = [pair for cluster in view["clusters"] for pair in cluster["pairs"]]
    return [*view["nameserver_pods"], *(pod for pair in pairs for pod in pair["members"])]


def _host(address: str) -> str:
    return split_address(address)[0]
