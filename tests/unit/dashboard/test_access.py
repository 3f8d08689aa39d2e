"""Settings that would let strangers in are refused; clients are slowed down one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from failback.analytics.dashboard.http.access import MOST_CLIENTS, Access, RateLimit
from failback.analytics.dashboard.settings import DashboardSettings, is_loopback
from failback.analytics.web.tokens import TokenFile, digest_of, new_token
from failback.protocol.errors import ConfigError


def test_loopback_is_told_from_the_rest() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.evil", "", "127.1")))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.com"])
def test_strangers_need_tokens_or_a_proxy(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--tokens FILE or --trust-proxy"):
        DashboardSettings(tmp_path, host=host).check()
    DashboardSettings(tmp_path, host=host, tokens=tmp_path / "tokens").check()
    DashboardSettings(tmp_path, host=host, proxy="10.0.0.1").check()


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("--trust-proxy", {"proxy": "proxy.example"}),
        ("--trust-proxy", {"proxy": "10.0.0.0/8"}),
        ("--namesrv", {"namesrv": ("orders",)}),
        ("--namesrv", {"namesrv": ("a:9876", "b:port")}),
    ],
)
def test_an_address_that_is_none_is_named(
    option: str, wrong: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"^{option}: (must be|has) "):
        DashboardSettings(tmp_path, **wrong).check()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--runs"):
        DashboardSettings(tmp_path / "none").check()


def test_a_client_has_a_burst_and_then_its_rate() -> None:
    limit = RateLimit(60)
    assert [limit.take("a", 0.0) for _ in range(60)] == [0] * 60
    assert limit.take("a", 0.0) >= 1
    assert limit.take("b", 0.0) == 0, "another client is not slowed down"
    assert limit.take("a", 1.1) == 0
    assert limit.take("a", 1.1) >= 1


def test_who_asks_under_many_addresses_fills_no_memory() -> None:
    limit = RateLimit(60)
    for number in range(MOST_CLIENTS + 500):
        limit.take(str(number), 0.0)
    assert len(limit._left) == MOST_CLIENTS


def connection(client: str, **headers: str) -> HTTPConnection:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return HTTPConnection({"type": "http", "client": (client, 40000), "headers": named})


def test_a_proxy_may_pass_on_how_its_users_logged_in(tmp_path: Path) -> None:
    settings = DashboardSettings(tmp_path, proxy="10.0.0.1", operators=frozenset({"ann"}))
    access = Access(settings, None)
    for own in ("Basic YW5uOg==", "Bearer eyJhbGciOi"):
        headers = {"authorization": own, "x_forwarded_user": "ann"}
        found = access.identify(connection("10.0.0.1", **headers))
        assert found is not None
        assert (found.name, found.may("operate")) == ("ann", True)
        assert access.identify(connection("10.0.0.2", **headers)) is None
    assert access.identify(connection("10.0.0.1", authorization="Bearer x")) is None


def test_a_token_goes_before_the_user_of_the_proxy(tmp_path: Path) -> None:
    token = new_token()
    (tmp_path / "tokens").write_text(f"{digest_of(token)} read robot\n")
    settings = DashboardSettings(tmp_path, proxy="10.0.0.1", operators=frozenset({"ann"}))
    access = Access(settings, TokenFile(tmp_path / "tokens"))
    headers = {"authorization": f"Bearer {token}", "x_forwarded_user": "ann"}
    found = access.identify(connection("10.0.0.1", **headers))
    assert found is not None
    assert (found.name, found.may("operate")) == ("robot", False)


@pytest.mark.parametrize(
    ("proxy", "client"),
    [("10.0.0.1", "::ffff:10.0.0.1"), ("0:0:0:0:0:0:0:1", "::1"), ("FD00::A", "fd00::a")],
)
def test_a_proxy_is_known_however_its_address_is_written(
    proxy: str, client: str, tmp_path: Path
) -> None:
    access = Access(DashboardSettings(tmp_path, proxy=proxy), None)
    found = access.identify(connection(client, x_forwarded_user="ann"))
    assert found is not None
    assert found.name == "ann"
    assert access.identify(connection("10.0.0.2", x_forwarded_user="ann")) is None
