"""What is fetched and compiled for tests: checkouts that differ do not disturb each other."""

from __future__ import annotations

from pathlib import Path

from tools.setup_java import once


def test_other_inputs_have_a_folder_of_their_own(tmp_path: Path) -> None:
    made = []

    def folder_of(text: str) -> Path:
        source = tmp_path / text / "Program.java"
        source.parent.mkdir(exist_ok=True)
        source.write_text(text)

        def make(target: Path) -> None:
            made.append(text)
            (target / "Program.class").write_text(text)

        return once(tmp_path / "cache" / "classes", [source], make)

    ours, theirs = folder_of("ours"), folder_of("theirs")
    assert ours == folder_of("ours") != theirs
    assert made == ["ours", "theirs"]
    assert (ours / "Program.class").read_text() == "ours"
    assert (theirs / "Program.class").read_text() == "theirs"


def test_what_could_not_be_made_is_made_anew(tmp_path: Path) -> None:
    source = tmp_path / "pom.xml"
    source.write_text("")

    def cut(target: Path) -> None:
        (target / "half.jar").touch()
        raise KeyboardInterrupt

    try:
        once(tmp_path / "lib", [source], cut)
    except KeyboardInterrupt:
        made = once(tmp_path / "lib", [source], lambda target: (target / "whole.jar").touch())
    assert [each.name for each in made.iterdir()] == ["whole.jar"]
