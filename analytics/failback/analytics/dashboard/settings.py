"""The settings of a dashboard, and what it can start. The command line makes both."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from failback.client.remoting.addresses import addresses_of, canonical
from failback.client.remoting.guarded.access import ClusterAccess
from failback.client.remoting.http_limits import WEB_BOUNDS, HttpBounds
from failback.common.options import (
    HOST,
    METRICS_HOST,
    METRICS_PORT,
    PORT,
    TLS_CERT,
    TLS_KEY,
    option,
)
from failback.protocol.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of an option, in words."""

    value: str
    words: str
    not_with: tuple[str, str] | None = None
    """Name and value of another option that it cannot be taken with."""


@dataclass(frozen=True, slots=True)
class Option:
    """What is asked before a start: one of ``choices``, or a number within limits."""

    meaning: str
    default: str
    choices: tuple[Choice, ...] = ()
    least: float = 0
    most: float = 0
    whole: bool = False
    """Of numbers; an empty field leaves it to the experiment."""

    def check(self, name: str, value: str, others: Mapping[str, str]) -> None:
        """Raise ``ConfigError`` for what cannot be taken."""
        if self.choices:
            self._check_choice(name, value, others)
        elif value:
            self._check_number(name, value)

    def _check_choice(self, name: str, value: str, others: Mapping[str, str]) -> None:
        found = next((each for each in self.choices if each.value == value), None)
        if found is None:
            known = " or ".join(each.value for each in self.choices)
            raise ConfigError(name, f'must be {known}, got "{value}"')
        if found.not_with is not None and others.get(found.not_with[0]) == found.not_with[1]:
            raise ConfigError(name, f"{value} cannot be taken with {'='.join(found.not_with)}")

    def _check_number(self, name: str, value: str) -> None:
        kind = "a whole number" if self.whole else "a number"
        try:
            number = float(value)
        except ValueError:
            raise ConfigError(name, f'must be {kind}, got "{value}"') from None
        if not self.least <= number <= self.most or (self.whole and not number.is_integer()):
            limits = f"{self.least:g} to {self.most:g}"
            raise ConfigError(name, f'must be {kind} from {limits}, got "{value}"')

    def document(self) -> dict[str, object]:
        """For the API."""
        return asdict(self) | ({"least": None, "most": None} if self.choices else {})


@dataclass(frozen=True, slots=True)
class Scenario:
    """An experiment that can be started from the page."""

    name: str
    title: str
    what_happens: str
    needs_cluster: bool
    """It runs on a cluster that is up already; else it brings its own and takes it away."""
    arms: Sequence[str]
    faults: Sequence[str]
    """What is done to whom, one sentence each."""
    command: Callable[[Mapping[str, str]], Sequence[str]]
    """The command line for values of all ``options``, which are checked."""
    options: Mapping[str, Option] = field(default_factory=dict)
    takes: str = ""
    """How long, in words."""

    def command_for(self, options: Mapping[str, str]) -> list[str]:
        """The command line for what was chosen. Raises ``ConfigError``."""
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            raise ConfigError(unknown[0], "no such option")
        chosen = self.chosen(options)
        for name, each in self.options.items():
            each.check(name, chosen[name], chosen)
        return list(self.command(chosen))

    def chosen(self, options: Mapping[str, str]) -> dict[str, str]:
        """Every option with its value."""
        return {name: options.get(name, each.default) for name, each in self.options.items()}


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """One dashboard."""

    runs: Path = option(Path("runs"), "FOLDER", "Folder that holds the run folders.")
    """It is read again and again."""
    roots: tuple[Path, ...] = ()
    """Roots of local runtimes, besides those that demos make below ``runs``."""
    namesrv: tuple[str, ...] = ()
    """Name servers of clusters that nobody here runs."""
    access: ClusterAccess | None = None
    """Of those clusters, where they are guarded."""
    kubeconfig: Path | None = option(
        None, "FILE", "How to reach Kubernetes (default: $KUBECONFIG, else ~/.kube/config)."
    )
    kube_namespaces: tuple[str, ...] = option(
        (),
        "NAME",
        "Show the BrokerClusters of this namespace (default: none).",
        name="kube-namespace",
        read=lambda names: tuple(dict.fromkeys(filter(None, names or ()))),
    )
    """Their NameServers are read, too; without one Kubernetes is not asked."""
    host: str = option("127.0.0.1", HOST)
    port: int = option(8090, PORT)
    tokens: Path | None = option(
        None, "FILE", "Token file (failback collect token); needed off loopback."
    )
    """Without one only loopback is served, and every local user may do everything."""
    proxy: str = option(
        "", "ADDRESS", "IP address of an authenticating proxy to trust.", name="trust-proxy"
    )
    """The ``proxy_header`` of requests from other addresses is ignored."""
    proxy_header: str = option(
        "X-Forwarded-User", "NAME", "Header in which the proxy names the user."
    )
    operators: frozenset[str] = option(
        frozenset(), "USER", "User of the proxy who may start experiments.", name="operator"
    )
    """They may abort experiments, too; all other users only look."""
    public_hosts: frozenset[str] = option(
        frozenset(),
        "NAME",
        "Name under which the page is reached, too.",
        name="public-host",
        read=lambda names: frozenset(name.lower() for name in names or ()),
    )
    tls_cert: Path | None = option(None, TLS_CERT)
    tls_key: Path | None = option(None, TLS_KEY)
    metrics_port: int | None = option(None, METRICS_PORT)
    metrics_host: str = option("127.0.0.1", METRICS_HOST)
    poll_seconds: float = option(
        1.0,
        "SECONDS",
        "Time between two samples of the brokers; three times that while all is well.",
        least=0.2,
        most=60,
    )
    """All is well on clusters that no local runtime runs, whose brokers all answer."""
    requests_per_minute: int = option(
        1200, "N", "Most requests of one address in a minute; more get 429.", least=1
    )
    """A page with its figures is about 30 requests."""
    writes_per_minute: int = option(
        20, "N", "Most logins, starts and aborts of one address in a minute.", least=1
    )
    bounds: HttpBounds = WEB_BOUNDS
    """How many connections there may be, in all and from one address."""
    audit: Path | None = option(
        None,
        "FILE",
        "Where it is noted who started and aborted what (default: RUNS/audit.jsonl).",
    )
    """One JSON line for each start and abort."""

    @property
    def audit_file(self) -> Path:
        return self.audit or self.runs / "audit.jsonl"

    @property
    def is_open(self) -> bool:
        """Nobody has to say who they are."""
        return self.tokens is None and not self.proxy

    def check(self) -> None:
        """Refuse what would let strangers in, and a folder of runs that is not there.

        Raises:
            ConfigError: Names the option.
        """
        self.check_access()
        if not self.runs.is_dir():
            raise ConfigError("--runs", f"{self.runs} is no folder; make it or name another")

    def check_access(self) -> None:
        """Refuse what would let strangers in. Raises ``ConfigError``, which names the option."""
        if self.is_open and not is_loopback(self.host):
            problem = f"{self.host} is not loopback: give --tokens FILE or --trust-proxy ADDRESS"
            raise ConfigError("--host", problem)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("--tls-cert", "needs --tls-key, and the other way round")
        if self.proxy and canonical(self.proxy) is None:
            raise ConfigError("--trust-proxy", f'must be an IP address, got "{self.proxy}"')
        for address in self.namesrv:
            addresses_of("--namesrv", address, typed=True)


def is_loopback(host: str) -> bool:
    """Whether ``host`` is a name or address of this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
