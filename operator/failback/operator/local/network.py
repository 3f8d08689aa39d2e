"""A network namespace for every pod: ``failback up --isolate-network``.

    bridge      fbDIGEST        198.18.N.1       of this host: clients and the harness use it
                                198.18.N.2       of this host: probes use it, and no fault cuts it
    namespace   fbDIGEST-I      198.18.N.(10+I)  of pod I, joined to the bridge by a veth pair

The digest is the root's, so two roots live side by side. ``network.json`` of the root names all of
it before it is made. So ``failback down`` removes it, also after the runtime was killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from failback.common.programs import find_program
from failback.operator.local.root import Root, read_json, write_json
from failback.protocol.errors import ConfigError

TOOLS: Final = {
    "ip": "iproute2",
    "nft": "nftables",
    "iptables": "iptables",
    "nsenter": "util-linux",
}
"""Programs that an isolated cluster and its faults need, and their Debian packages."""
_SUBNETS: Final = tuple(f"198.{18 + half}.{third}" for half in (0, 1) for third in range(256))
"""The range that RFC 2544 sets aside for tests of networks."""
_FIRST_POD: Final = 10
_MOST_PODS: Final = 240


@dataclass(frozen=True, slots=True)
class Network:
    """The names and addresses of one root's network."""

    bridge: str
    subnet: str
    pods: tuple[str, ...]

    @property
    def host(self) -> str:
        return f"{self.subnet}.1"

    @property
    def prober(self) -> str:
        return f"{self.subnet}.2"

    def address(self, pod: str) -> str:
        return f"{self.subnet}.{_FIRST_POD + self.pods.index(pod)}"

    def namespace(self, pod: str) -> str:
        return f"{self.bridge}-{self.pods.index(pod)}"

    @property
    def namespaces(self) -> list[str]:
        return [self.namespace(pod) for pod in self.pods]


def plan_network(root: Root, pods: Sequence[str]) -> Network:
    """Return the network that :func:`make` would make. Nothing is changed.

    Raises:
        ConfigError: It could not be made here; says what is missing and how to get it.
    """
    problem = missing()
    if problem:
        raise ConfigError("--isolate-network", problem)
    if len(pods) > _MOST_PODS:
        raise ConfigError("--isolate-network", f"takes {_MOST_PODS} pods, not {len(pods)}")
    digest = hashlib.sha256(os.fsencode(root.path)).digest()
    bridge = f"fb{digest.hex()[:8]}"
    taken = {
        address["local"].rpartition(".")[0]
        for interface in json.loads(_ip("-json", "-4", "address"))
        if interface["ifname"] != bridge
        for address in interface["addr_info"]
    }
    start = int.from_bytes(digest[:2], "big") % len(_SUBNETS)
    free = [each for each in (*_SUBNETS[start:], *_SUBNETS[:start]) if each not in taken]
    if not free:
        raise ConfigError("--isolate-network", "every subnet of 198.18.0.0/15 is taken")
    return Network(bridge, free[0], tuple(pods))


def missing() -> str:
    """Say what this account or machine lacks for namespaces; empty: nothing."""
    if os.geteuid() != 0:
        return "makes network namespaces, which only root may do: run the command as root"
    absent = [tool for tool in TOOLS if find_program(tool) is None]
    if absent:
        packages = " ".join(TOOLS[tool] for tool in absent)
        return f"needs {', '.join(absent)}: apt-get install {packages}"
    return ""


def make(network: Network, root: Root) -> None:
    """Make the network; what there may be of it afterwards is on disk first.

    Raises:
        ConfigError: The kernel refused a part; what was made is removed.
    """
    write_json(root.network_file, {"bridge": network.bridge, "namespaces": network.namespaces})
    bridge, subnet = network.bridge, f"{network.subnet}.0/24"
    lines = [
        f"link add {bridge} type bridge",
        f"address add {network.host}/24 dev {bridge} noprefixroute",
        f"address add {network.prober}/24 dev {bridge} noprefixroute",
        f"link set {bridge} up",
        # The kernel refuses a second route to one subnet: so two roots never share it.
        f"route add {subnet} dev {bridge} src {network.host}",
    ]
    for name in network.namespaces:
        lines += [
            f"netns add {name}",
            f"link add {name} type veth peer name eth0 netns {name}",
            f"link set {name} master {bridge} up",
        ]
    try:
        _batch(lines)
        for pod in network.pods:
            inside = [
                "link set lo up",
                f"address add {network.address(pod)}/24 dev eth0",
                "link set eth0 up",
                f"route add default via {network.host}",
            ]
            _batch(inside, "-netns", network.namespace(pod))
    except ConfigError:
        for _ in remove(root):
            pass
        raise


def remove(root: Root) -> Iterator[str]:
    """Remove the network of a root, if it has one; yield a line. May be called twice."""
    made: dict[str, Any] | None = read_json(root.network_file)
    if made is None:
        return
    links = {each["ifname"] for each in json.loads(_ip("-json", "link"))}
    names = [name for name in made["namespaces"] if os.path.exists(f"/run/netns/{name}")]
    lines = [f"link delete {name}" for name in made["namespaces"] if name in links]
    lines += [f"netns delete {name}" for name in names]
    lines += [f"link delete {made['bridge']}"] if made["bridge"] in links else []
    _batch(lines)
    root.network_file.unlink()
    yield f"{made['bridge']}: network of {len(made['namespaces'])} pods removed"


def within(namespace: str, argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command that becomes ``argv`` in a network namespace; empty: here."""
    if not namespace:
        return tuple(argv)
    return (find_program("nsenter") or "nsenter", f"--net=/run/netns/{namespace}", "--", *argv)


def _batch(lines: Sequence[str], *options: str) -> None:
    _ip(*options, "-batch", "-", stdin="\n".join(lines))


def _ip(*options: str, stdin: str = "") -> str:
    command = [find_program("ip") or "ip", *options]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError("--isolate-network", f"ip: {error.strerror}") from error
    if done.returncode:
        raise ConfigError("--isolate-network", done.stderr.strip().replace("\n", "; "))
    return done.stdout
