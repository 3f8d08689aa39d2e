"""The command that builds one image."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import build_images, hashes
from tools.build_images import TARGETS, BuildError, base_image, command, main, parse, version

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
    words = command(builder, target, parse(["--any-base"]))
    assert words[0] == builder
    assert words[words.index("--target") + 1] == target
    assert words[words.index("--tag") + 1] == f"failback/{target}:{version()}"
    assert arguments(words)["SOURCE_DATE_EPOCH"] == "1700000000"
    assert arguments(words)["VERSION"] == version()
    assert ("--timestamp" in words) is (builder != "docker")
    assert words[-1] == "."


def test_another_base_and_repository() -> None:
    base = f"local/python@sha256:{'0' * 64}"
    words = command("podman", "broker", parse(["--base", base, "--repository", "r.io/x"]))
    assert arguments(words)["PYTHON_IMAGE"] == base
    assert f"r.io/x/broker:{version()}" in words


@pytest.mark.parametrize("digest", ["", ":3.11", "@sha256:12", f"@sha512:{'0' * 64}"])
def test_a_base_without_a_digest_is_refused_unless_any_is_allowed(
    digest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = f"local/python{digest}"
    assert main(["--base", base]) == 2
    assert capsys.readouterr().err == (
        f"images: {base} of --base has no digest: its tag may name another image tomorrow. Write"
        " NAME:TAG@sha256:DIGEST there, or allow it with --any-base\n"
    )
    assert base_image(parse(["--base", base, "--any-base"])) == base


def test_the_base_of_the_file_is_taken_by_the_same_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tools" / "base_images.toml"
    file.parent.mkdir()
    monkeypatch.setattr(build_images, "ROOT", tmp_path)
    monkeypatch.setattr(build_images, "BASES", file)
    pinned = f"docker.io/library/python:3.11@sha256:{'a' * 64}"
    file.write_text(f'python = "{pinned}"\n')
    assert base_image(parse([])) == pinned
    file.write_text('python = "docker.io/library/python:3.11"\n')
    with pytest.raises(BuildError, match=r"python:3.11 of tools/base_images.toml has no digest"):
        base_image(parse([]))


@pytest.mark.parametrize("builder", ["docker", "podman", "buildah"])
def test_the_list_of_packages_is_written_beside_the_images(builder: str, tmp_path: Path) -> None:
    words = command(builder, "chaos-sbom", parse(["--any-base"]), out=tmp_path)
    assert words[words.index("--target") + 1] == "chaos-sbom"
    assert words[words.index("--output") + 1] == f"type=local,dest={tmp_path}"
    assert "--tag" not in words


def test_options_for_buildah_stand_before_its_command() -> None:
    options = parse(
        ["--storage=--storage-driver=vfs", "--pass-on=--isolation=chroot", "--any-base"]
    )
    words = command("buildah", "broker", options)
    assert words[:3] == ["buildah", "--storage-driver=vfs", "bud"]
    assert words.index("--isolation=chroot") > words.index("bud")


def test_the_dockerfile_has_every_target() -> None:
    stages = [
        line.rsplit(" AS ", 1)[1]
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("FROM ")
    ]
    assert {*TARGETS, *(f"{target}-sbom" for target in TARGETS)} <= set(stages)


def test_the_image_that_serves_the_dashboard_can_ask_kubernetes() -> None:
    assert "serve" in hashes.EXTRAS["analytics"]


def test_why_nothing_can_build_is_said_of_each_builder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, said in (("docker", "echo warning >&2; echo no daemon >&2"), ("podman", "true")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{said}\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--any-base"]) == 2
    assert capsys.readouterr().err == (
        "images: docker does not work: no daemon; podman does not work: podman info failed; "
        "buildah is not installed\n"
    )
    assert main(["--builder", "buildah", "--any-base"]) == 2
    assert capsys.readouterr().err == "images: buildah is not installed\n"
