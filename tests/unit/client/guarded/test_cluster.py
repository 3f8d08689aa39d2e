"""Which cluster is asked, and how: options before the environment before the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from failback.client.remoting.guarded.cluster import Cluster, Given, config_file, find_cluster
from failback.protocol.errors import ConfigError
from tests.support.net.certificates import Authority

Find = Callable[..., Cluster]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "failback" / "config.toml"


@pytest.fixture
def find(tmp_path: Path, file: Path) -> Find:
    """Find a cluster by a file's text, variables and options."""

    def find(text: str = "", *, given: Given | None = None, **environ: str) -> Cluster:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return find_cluster(given or Given(), {"XDG_CONFIG_HOME": str(tmp_path), **environ})

    return find


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    folder.mkdir()
    for name in ("option", "variable", "file"):
        (folder / name).write_text(f"accessKey: {name}\nsecretKey: 12345678\n")
    return folder


@pytest.mark.sample
def test_each_setting_is_of_the_first_place_that_has_it(find: Find, keys: Path) -> None:
    text = f'namesrv = "file:1"\naccess_key_file = "{keys}/file"\ntls = true\n'
    environ = {
        "FAILBACK_NAMESRV": "variable:1",
        "NAMESRV_ADDR": "mqadmins:1",
        "FAILBACK_ACCESS_KEY_FILE": f"{keys}/variable",
        "FAILBACK_TLS": "no",
    }
    given = Given(namesrv="option:1", access_key_file=keys / "option", tls=True)
    for options, variables, who, tls in (
        (given, environ, "option", True),
        (None, environ, "variable", False),
        (None, {}, "file", True),
    ):
        found = find(text, given=options, **variables)
        assert found.name_servers == (f"{who}:1",)
        assert found.access is not None
        assert found.access.key_file is not None
        assert found.access.key_file.key.access_key == who
        assert (found.access.tls is not None) is tls
    del environ["FAILBACK_NAMESRV"]
    assert find(text, **environ).name_servers == ("mqadmins:1",)


def test_without_anything_no_cluster_is_named(tmp_path: Path) -> None:
    assert find_cluster(Given(), {"XDG_CONFIG_HOME": str(tmp_path)}) == Cluster()
    assert find_cluster(Given(), {"HOME": "/x", "XDG_CONFIG_HOME": str(tmp_path)}) == Cluster()


def test_where_the_file_is() -> None:
    assert config_file({}) == Path.home() / ".config/failback/config.toml"
    assert config_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/failback/config.toml")
    assert config_file({"XDG_CONFIG_HOME": "/x", "FAILBACK_CONFIG": "/y"}) == Path("/y")


@pytest.mark.parametrize(
    "text", ['namesrv = "a:1;b:2"', 'namesrv = "a:1, b:2;"', 'namesrv = ["a:1", "b:2"]']
)
def test_addresses_have_one_form(find: Find, text: str) -> None:
    assert find(text).name_servers == ("a:1", "b:2")


def test_paths_of_the_file_begin_in_its_folder(find: Find, file: Path, tmp_path: Path) -> None:
    ca = Authority(tmp_path / "ca").file
    file.parent.mkdir()
    file.with_name("ca.pem").write_bytes(ca.read_bytes())
    access = find('tls_ca = "ca.pem"\ntls_server_name = "broker"\n').access
    assert access is not None
    assert access.tls is not None  # a file of it switches it on
    assert access.tls.files.ca == file.with_name("ca.pem")
    assert access.tls.name_of("10.0.0.1") == "broker"
    assert find('tls_ca = "ca.pem"\ntls = false\n').access is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("namesrv = a:1", r"config.toml: is no TOML: .*line 1"),
        ('nameserver = "a:1"', r"config.toml: nameserver: there is no such setting"),
        ("namesrv = 1", r"namesrv in .*config.toml: must be a text in quotes, got 1"),
        ('namesrv = "a"', r"namesrv in .*config.toml: has 'a': the port is missing"),
        ('tls = "true"', r"tls in .*config.toml: must be true or false, got 'true'"),
        ('access_key_file = "k"', r"access_key_file in .*config.toml: .*failback/k cannot be read"),
        ('tls_ca = "ca"', r"tls_ca in .*config.toml: .*failback/ca: no such file"),
    ],
)
def test_what_cannot_be_used_is_named_by_its_place(find: Find, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find(text)


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("FAILBACK_NAMESRV=a", "FAILBACK_NAMESRV: has 'a'"),
        ("FAILBACK_NAMESRV= ;", "FAILBACK_NAMESRV: names no address"),
        ("NAMESRV_ADDR= ", "NAMESRV_ADDR: is blank: write HOST:PORT"),
        ("FAILBACK_TLS=maybe", "FAILBACK_TLS: must be true or false, got 'maybe'"),
        ("FAILBACK_TLS_CA=/none", "FAILBACK_TLS_CA: /none: no such file"),
        ("FAILBACK_ACCESS_KEY_FILE=/none", "FAILBACK_ACCESS_KEY_FILE: /none cannot be read"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(find: Find, variable: str, words: str) -> None:
    name, _, value = variable.partition("=")
    with pytest.raises(ConfigError, match=words):
        find(**{name: value})
    assert find(**{name: ""}) == Cluster()


def test_options_are_named_as_the_command_has_them(find: Find, tmp_path: Path) -> None:
    given = Given(tls_ca=tmp_path / "none", tls_prefix="cluster-")
    with pytest.raises(ConfigError, match=r"--cluster-tls-ca: .*none: no such file"):
        find(given=given)
