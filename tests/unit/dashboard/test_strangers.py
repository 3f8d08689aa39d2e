"""What a stranger registers never becomes something to run, to click, or to be misled by."""

from __future__ import annotations

import ast
import html
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from failback.analytics.dashboard.serve import make_app
from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.dashboard.sources.clusters import ClusterRef, MemberRef, PairRef
from failback.analytics.live.facts import GroupTopic
from failback.analytics.live.queues import reset_command
from failback.analytics.report.page.html import plain_figure
from failback.common.text import typed
from tests.support.dashboard.asgi import ask
from tests.support.dashboard.pairs import NOW, seen, world

pytestmark = pytest.mark.foreign

HOSTILE = (
    "127.0.0.1:9;touch never #",
    "$(touch never)",
    "`touch never`",
    "a\ntouch never\n",
    "a\rtouch never",
    "a' ; touch never ; '",
    "-n",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "txt.\u202egpj",
    "zero\u200bwidth",
    "esc\x1b[2J",
)
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_word_of_a_command_stays_one_word(text: str) -> None:
    for command in (
        typed("failback", "admin", "getBrokerConfig", "-b", text),
        reset_command(text, text, text, 0, 7, namesrv=(text,)) or "",
    ):
        assert command.isprintable()
        words = shlex.split(command)
        assert words[0] == "failback"
        assert ";" not in words
        assert words.count("touch") == 0
        assert text in words or not text.isprintable()


@pytest.mark.parametrize("text", HOSTILE)
def test_pages_show_it_and_offer_nothing_of_it(text: str, tmp_path: Path) -> None:
    app, _ = make_app(DashboardSettings(tmp_path), [], lambda _: None)
    poller = app.state.shared.poller
    master, slave = MemberRef(text, text, text, 0, "Ready"), MemberRef(text, text, "b:1", 1, text)
    cluster = ClusterRef(text, text, text, text, text, (text,), (PairRef(text, (master, slave)),))
    key = GroupTopic(text, text)
    brokers = {
        address: replace(found, offsets={key: {0: offset}}, ends={text: {0: 400}})
        for (address, found), offset in zip(
            world(seen(master, 100, problem=text), seen(slave, 200)).items(), (1, 2), strict=True
        )
    }
    poller.state = replace(poller.state, at=NOW, clusters=(cluster,), seen=brokers)
    poller.history.note(NOW, poller.state.cluster_documents())
    for target in ("/", "/offsets"):
        status, body = ask(app, target, accept="text/html")
        assert status == 200
        assert all(line.isprintable() for line in body.split("\n")), target
        for copied in re.findall(r'data-copy="([^"]*)"', body):
            words = shlex.split(html.unescape(copied))
            assert words[0] in ("failback", "kubectl")
            assert words.count("touch") == 0
        assert "<script>alert" not in body
        assert "<img" not in body
        assert "touch never\n" not in body
    assert "<bdi>" in ask(app, "/", accept="text/html")[1]


def test_no_command_is_put_together_in_another_way() -> None:
    """A text with a command of ours and a value in it has to come from ``typed``."""
    command = re.compile(r"\b(?:failback|kubectl) [a-z-]+ .*\{\}")
    found = []
    for package in ("analytics", "operator", "chaos", "broker-image"):
        for file in (ROOT / package / "failback").rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr):
                    text = "".join(
                        str(part.value) if isinstance(part, ast.Constant) else "{}"
                        for part in node.values
                    )
                    if command.search(text):
                        found.append(f"{file.name}: {text}")
    fixed = {"crds.py", "demo.py", "field_reference.py", "generate.py", "offsets.py"}  # their names
    assert [each for each in found if each.partition(":")[0] not in fixed] == []


@pytest.mark.parametrize("text", [*HOSTILE, '<a href="http://shop.example">read this</a>'])
def test_no_figure_takes_a_name_for_markup(text: str) -> None:
    figure = {"data": [{"name": text, "y": [text, 1], "text": text}], "layout": {"x": {"t": text}}}
    shown = json.dumps(plain_figure(json.dumps(figure)), ensure_ascii=False)
    assert "<" not in shown
    assert shown.isprintable()
    assert json.loads(shown)["data"][0]["y"][1] == 1
