"""The command that builds one image."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.build_images import TARGETS, command, main, parse, version

from tests.support.processes.child_process import ROOT


@pytest.fixture(autouse=True)
def fixed_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def arguments(words: list[str]) -> dict[str, str]:
    pairs = [words[place + 1] for place, word in enumerate(words) if word == "--build-arg"]
    return dict(pair.split("=", 1) for pair in pairs)


@pytest.mark.parametrize("builder", ["docker", "podman", "buildah"])
@pytest.mark.parametrize("target", TARGETS)
def test_target_tag_and_time_are_named(builder: str, target: str) -> None:
    words = command(builder, target, parse([]))
    assert words[0] == builder
    assert words[words.index("--target") + 1] == target
    assert words[words.index("--tag") + 1] == f"failback/{target}:{version()}"
    assert arguments(words)["SOURCE_DATE_EPOCH"] == "1700000000"
    assert arguments(words)["VERSION"] == version()
    assert ("--timestamp" in words) is (builder != "docker")
    assert words[-1] == "."


def test_another_base_and_repository() -> None:
    words = command("podman", "broker", parse(["--base", "local/python", "--repository", "r.io/x"]))
    assert arguments(words)["PYTHON_IMAGE"] == "local/python"
    assert f"r.io/x/broker:{version()}" in words


def test_options_for_buildah_stand_before_its_command() -> None:
    options = parse(["--storage=--storage-driver=vfs", "--pass-on=--isolation=chroot"])
    words = command("buildah", "broker", options)
    assert words[:3] == ["buildah", "--storage-driver=vfs", "bud"]
    assert words.index("--isolation=chroot") > words.index("bud")


def test_the_dockerfile_has_every_target() -> None:
    stages = [
        line.rsplit(" AS ", 1)[1]
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("FROM ")
    ]
    assert set(TARGETS) <= set(stages)


def test_the_image_that_serves_the_dashboard_can_ask_kubernetes() -> None:
    stage = (ROOT / "Dockerfile").read_text().partition(" AS analytics-files\n")[2]
    extras = stage.partition("image_files.sh ")[2].splitlines()[0].split(",")
    assert "serve" in extras


def test_why_nothing_can_build_is_said_of_each_builder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, said in (("docker", "echo warning >&2; echo no daemon >&2"), ("podman", "true")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{said}\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([]) == 2
    assert capsys.readouterr().err == (
        "images: docker does not work: no daemon; podman does not work: podman info failed; "
        "buildah is not installed\n"
    )
    assert main(["--builder", "buildah"]) == 2
    assert capsys.readouterr().err == "images: buildah is not installed\n"
