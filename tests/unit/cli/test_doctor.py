"""``failback doctor``: what it finds, and a bundle for others without a secret in it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.cli.__main__ import main
from failback.cli.administer import doctor_checks
from failback.cli.administer.doctor_checks import MISSING, OK, OPTIONAL, WARNING
from failback.cli.administer.redaction import cleaned, is_secret_name
from failback.client.remoting.guarded.cluster import Cluster
from tests.support.net.fake_remoting import FakeBroker, lists

SECRETS = {
    "in_conf": "hunter2-conf",
    "in_environment": "hunter3-env",
    "in_uri": "hunter4-uri",
    "in_properties": "hunter5-prop",
    "in_yaml": "hunter6-yaml",
    "in_block": "hunter7-block",
    "in_log": "hunter8-bearer",
    "in_pem": "MIIEvQhunter9",
    "short": "s3cr",
}


def members(bundle: Path) -> dict[str, str]:
    with tarfile.open(bundle) as archive:
        found = {}
        for entry in archive.getmembers():
            file = archive.extractfile(entry)
            assert file is not None
            found[entry.name.removeprefix("failback-bundle/")] = file.read().decode()
    return found


def plant(root: Path, run: Path) -> None:
    """A local cluster and a run that have a secret in every place where one can be."""
    conf = root / "pods" / "demo-0" / "home" / "conf" / "broker.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text(
        f"brokerName=demo-0\nsecretKey={SECRETS['in_conf']}\naclPassword = {SECRETS['short']}\n"
        "listenPort=10911\n"
    )
    (root / "logs").mkdir()
    (root / "logs" / "demo-0.log").write_text(
        f"INFO Authorization: Bearer {SECRETS['in_log']}\nINFO took {SECRETS['in_conf']}\n"
        f"INFO lake s3://key:{SECRETS['in_uri']}@store/lake\nINFO ready\n"
        f"-----BEGIN PRIVATE KEY-----\n{SECRETS['in_pem']}\n-----END PRIVATE KEY-----\n"
    )
    (root / "resources.json").write_text(
        json.dumps({"env": [{"name": "DB_PASSWORD", "value": SECRETS["in_properties"]}]})
    )
    (run / "logs").mkdir(parents=True)
    (run / "run.json").write_text(
        json.dumps(
            {
                "run": "r1",
                "system": {"brokers": {"demo-0": {"accessKey": SECRETS["in_properties"]}}},
                "lake": f"s3://a:{SECRETS['in_uri']}@store/lake",
                "keys": 1000,
            }
        )
    )
    (run / "experiment.yaml").write_text(
        f"env:\n- name: API_TOKEN\n  value: {SECRETS['in_yaml']}\n"
        f"password: |\n  {SECRETS['in_block']}\nseed: 42\n"
    )


def test_a_bundle_has_what_answers_a_question_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, run, bundle = tmp_path / "root", tmp_path / "run", tmp_path / "q.tar.gz"
    plant(root, run)
    monkeypatch.setenv("FAILBACK_TOKEN", SECRETS["in_environment"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS["in_environment"])
    monkeypatch.setenv("UNRELATED", "not even its name")
    words = ["doctor", "--root", str(root), "--run", str(run), "--bundle", str(bundle)]
    main([*words, "--runs", str(tmp_path)])
    found = members(bundle)
    assert set(found) >= {
        "checks.json",
        "versions.txt",
        "environment.txt",
        "cluster/resources.json",
        "cluster/logs/demo-0.log",
        "cluster/pods/demo-0/home/conf/broker.conf",
        "run/run.json",
        "run/experiment.yaml",
    }
    for name, text in found.items():
        for where, secret in SECRETS.items():
            assert secret not in text, f"the secret {where} is in {name}"
        assert "UNRELATED" not in text
    assert "FAILBACK_TOKEN=***\n" in found["environment.txt"]
    assert (
        "brokerName=demo-0\nsecretKey=***\n" in found["cluster/pods/demo-0/home/conf/broker.conf"]
    )
    assert "listenPort=10911" in found["cluster/pods/demo-0/home/conf/broker.conf"]
    assert "INFO ready" in found["cluster/logs/demo-0.log"]
    assert "seed: 42" in found["run/experiment.yaml"]
    assert json.loads(found["run/run.json"])["keys"] == 1000
    assert "failback==" in found["versions.txt"]
    assert "without secrets" in capsys.readouterr().out


NAMES = ["password", "DB_PASSWD", "secretKey", "accessKey", "api_key", "X-Auth-Token"]
FORMS = [
    "{name}={secret}\n",
    "{name} = {secret}\nnext=1\n",
    "{name}: {secret}\n",
    "export {name}='{secret}'\n",
    '{{"{name}": "{secret}"}}',
    "url https://host/x?{name}={secret}&a=1\n",
    "- name: {name}\n  value: {secret}\n",
    "{name}: |\n  {secret}\nother: 1\n",
]


@given(
    name=st.sampled_from(NAMES),
    form=st.sampled_from(FORMS),
    file=st.sampled_from(["a.conf", "a.json", "a.jsonl", "a.yaml"]),
    secret=st.text("abcdefghijkLMNOP0123456789+/-_", min_size=8, max_size=40).filter(
        lambda text: not text.isdecimal()
    ),
)
def test_what_stands_under_the_name_of_a_secret_is_gone_everywhere(
    name: str, form: str, file: str, secret: str
) -> None:
    texts = {file: form.format(name=name, secret=secret), "other.log": f"it was [{secret}] then"}
    found = cleaned(texts, {})
    assert all(secret not in text for text in found.values())


@pytest.mark.parametrize("name", ["keys", "keyspace", "brokerName", "passes", "businessKey", "key"])
def test_other_names_are_left_alone(name: str) -> None:
    if name != "passes":
        assert not is_secret_name(name)
    assert cleaned({"a.conf": f"x{name[1:]}=plain\n"}, {}) == {"a.conf": f"x{name[1:]}=plain\n"}


def test_everything_that_is_looked_at_says_what_to_do_where_it_is_not_right(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    findings = list(
        doctor_checks.look(file / "runs", tmp_path / "state", Cluster(("127.0.0.1:1",)))
    )
    for each in findings:
        assert each.state in (OK, OPTIONAL, WARNING, MISSING)
        assert bool(each.advice) == (each.state != OK), each
    by_name = {each.check: each for each in findings}
    assert by_name["Folder of --runs"].found == f"cannot write to {file / 'runs'}: {file} is a file"
    away = by_name["Name server 127.0.0.1:1"]
    assert away.found == "cannot reach name server 127.0.0.1:1: connection refused"
    assert {"Python", "Kernels in C", "Java", "Open files", "Memory"} <= set(by_name)


def test_what_readme_installs_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = {"aiohttp", "kopf", "kubernetes", "pandas", "pyspark"}  # none of them is in `demo`
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in absent else found(name)
    )
    places = ["--runs", str(tmp_path), "--root", str(tmp_path)]
    code = main(["doctor", *places, "--json"])
    findings = json.loads(capsys.readouterr().out)
    wrong = [each["check"] for each in findings if each["state"] == MISSING]
    assert (code, wrong) == (0, [])
    advice = {each["check"]: each["advice"] for each in findings if each["state"] == OPTIONAL}
    for extra in ("operator", "spark"):
        # No package index has failback: whoever takes the name there must not be installed.
        assert advice[f"Extra {extra}"].startswith(f"pip install '.[{extra}]'")


def test_java_is_told_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for text, state, shown in (
        ('openjdk version "1.8.0_402"', OPTIONAL, f"1.8.0_402 ({java})"),
        ('openjdk version "17.0.15" 2025-04-15', OK, f"17.0.15 ({java})"),
        ("nonsense", OPTIONAL, f"{java} does not tell its version"),
    ):
        java.parent.mkdir(exist_ok=True)
        java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
        java.chmod(0o755)
        (found,) = (each for each in [doctor_checks._java()])
        assert (found.state, found.found) == (state, shown)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert doctor_checks._java().found == "not there"


def test_the_code_is_1_where_something_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--runs", str(tmp_path), "--root", str(tmp_path)]
    assert main(["doctor", *places, "-n", "127.0.0.1:1", "--json"]) == 1
    (answer,) = [
        each for each in json.loads(capsys.readouterr().out) if "127.0.0.1:1" in each["check"]
    ]
    assert answer["state"] == MISSING
    assert main(["doctor", *places, "--bundle", str(tmp_path)]) == 2
    assert f"--bundle: {tmp_path} is a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "offsets", "is_named"),
    [
        ("V5_5_0", {}, True),
        ("V5_5_0", {"orders@billing": {0: 1}}, False),
        ("V5_3_3", {}, False),
    ],
)
def test_a_slave_that_copies_no_offsets_is_named(
    version: str, offsets: dict[str, dict[int, int]], is_named: bool
) -> None:
    with FakeBroker() as master, FakeBroker(broker_id=1) as slave:
        lists(master, slave)
        slave.version, slave.offsets = version, offsets
        server, *others = doctor_checks._name_server(Cluster((master.address,)))
    assert (server.state, len(others)) == (OK, is_named)
    for each in others:
        assert (each.check, each.state) == ("Slave b-1", WARNING)
        assert "apache/rocketmq#10284" in each.found


def test_a_cluster_in_another_folder_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "left" / "pods" / "demo-0" / "home"
    home.mkdir(parents=True)
    (tmp_path / "left" / "state.json").write_text("{}")
    pod = subprocess.Popen(["sleep", "60"], cwd=home)
    try:
        main(["doctor", "--json", "--root", str(tmp_path / "mine")])
        found = {each["check"]: each for each in json.loads(capsys.readouterr().out)}
        main(["doctor", "--json", "--root", str(tmp_path / "left")])
        own = capsys.readouterr().out
    finally:
        pod.kill()
        pod.wait()
    left = found[f"Cluster in {tmp_path / 'left'}"]
    assert (left["state"], left["found"]) == (WARNING, "1 process")
    assert f"failback down --root {tmp_path / 'left'}" in left["advice"]
    assert f"Cluster in {tmp_path / 'left'}" not in own, (
        "the folder that is asked about is no other"
    )
