"""What is nested too deeply to be decoded is cut, and everything beside it is there."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from failback.kube.shallow_json import CUT, DEEPEST, ShallowResponse, cut, loads, shallow


def nested(depth: int, kind: str) -> bytes:
    opens, closes = {"map": (b'{"a":', b"}"), "list": (b"[", b"]"), "both": (b'[{"a":', b"}]")}[
        kind
    ]
    return opens * depth + b"1" + closes * depth


@pytest.mark.parametrize("kind", ["map", "list", "both"])
@pytest.mark.parametrize("depth", [5_000, 50_000])
def test_what_is_too_deep_is_cut_and_the_rest_is_kept(kind: str, depth: int) -> None:
    found = loads(b'{"before": 1, "deep": ' + nested(depth, kind) + b', "after": [2]}')
    assert (found["before"], found["after"]) == (1, [2])
    levels, part = 1, found["deep"]
    while part != CUT:
        part, levels = (part["a"] if isinstance(part, dict) else part[0]), levels + 1
    assert levels == DEEPEST


def test_what_is_not_too_deep_is_the_same_bytes() -> None:
    draw = random.Random(7)

    def value(depth: int) -> Any:
        if depth == 0 or draw.random() < 0.2:
            return draw.choice(['}"{', "\\", "\u2028[", 1.5, None, True, "]" * 40])
        if draw.random() < 0.5:
            return [value(depth - 1) for _ in range(draw.randrange(4))]
        return {str(draw.random()): value(depth - 1) for _ in range(draw.randrange(4))}

    for _ in range(200):
        text = json.dumps([value(8) for _ in range(30)]).encode()
        assert shallow(text) == text
        assert cut(text) == text


def test_brackets_in_texts_nest_nothing() -> None:
    text = json.dumps({"a": "[" * 5000 + '\\"{', "b": "}" * 5000}).encode()
    assert cut(text) == text


def test_what_is_no_json_stays_what_it_is() -> None:
    text = b"[" * 400
    assert shallow(text) == text
    with pytest.raises(ValueError, match="Expecting value"):
        loads(text)


async def test_a_stream_of_lines_goes_on_behind_a_deep_one() -> None:
    lines = [b'{"n": 1}', b'{"deep": ' + nested(5_000, "map") + b"}", b'{"n": 3}']

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/list":
            return web.Response(body=b'{"items": [' + b",".join(lines) + b"]}")
        response = web.StreamResponse()
        await response.prepare(request)
        text = b"\n".join(lines) + b"\n"
        for begin in range(0, len(text), 700):
            await response.write(text[begin : begin + 700])
        return response

    app = web.Application()
    app.router.add_get("/{name}", answer)
    async with TestServer(app) as server, ClientSession(response_class=ShallowResponse) as session:
        async with session.get(server.make_url("/watch")) as response:
            got = b"".join([chunk async for chunk in response.content.iter_chunked(1 << 20)])
        found = [json.loads(line) for line in got.splitlines()]
        assert [each.get("n") for each in found] == [1, None, 3]
        async with session.get(server.make_url("/list")) as response:
            listed = await response.json()
        assert [each.get("n") for each in listed["items"]] == [1, None, 3]
