"""The small HTTP server behind the health ports."""

from __future__ import annotations

import asyncio

import pytest

from failback.client.remoting import http_server
from failback.client.remoting.http_limits import why_no_order
from failback.client.remoting.http_server import HttpServer, Reply


async def talk(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n", b"200 OK"),
        (b"GET /x?y=1 HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"HEAD /x HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET /y HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"PUT /x HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"GET /bad HTTP/1.1\r\n\r\n", b"500 Internal Server Error"),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"GET /x HTTP/1.1\r\nX: " + b"y" * 9000, b"431 Request Header Fields Too Large"),
    ],
)
async def test_requests_get_their_status(request_bytes: bytes, status: bytes) -> None:
    def broken(_method: str) -> Reply:
        raise RuntimeError("broken")

    server = HttpServer({"/x": lambda _method: Reply(200, b"body\n"), "/bad": broken})
    port = await server.listen("127.0.0.1", 0)
    try:
        answer = await talk(port, request_bytes)
    finally:
        await server.close()
    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
    assert len(body) == (0 if request_bytes.startswith(b"HEAD") else length)


async def test_a_slow_reader_gets_all_of_a_large_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.1)
    body = bytes(32 * 1024 * 1024)
    server = HttpServer({"/metrics": lambda _method: Reply(200, body)})
    port = await server.listen("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.3)
        answer = await reader.read()
        writer.close()
    finally:
        await server.close()
    assert len(answer.partition(b"\r\n\r\n")[2]) == len(body)


HERE = b"Host: 127.0.0.1:8088\r\n"


@pytest.mark.foreign
@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (HERE, 200),
        (b"Host: localhost\r\n", 200),
        (b"Host: [::1]:8088\r\n", 200),
        (b"host:127.0.0.1\r\nSec-Fetch-Site: none\r\n", 200),
        (HERE + b"Origin: http://shop.example\r\n", 403),
        (HERE + b"Origin: http://127.0.0.1:8088\r\n", 403),
        (HERE + b"ORIGIN: null\r\n", 403),
        (HERE + b"Origin:\r\n", 403),
        (HERE + b"Referer: http://shop.example/page\r\n", 403),
        (HERE + b"Sec-Fetch-Site: cross-site\r\n", 403),
        (HERE + b"Sec-Fetch-Site: same-origin\r\n", 403),
        (HERE + b"sec-fetch-site: none\r\nSec-Fetch-Site: cross-site\r\n", 403),
        (b"Host: shop.example\r\n", 403),
        (b"Host: shop.example:8088\r\n", 403),
        (b"Host: 127.0.0.1.shop.example\r\n", 403),
        (b"Host: 127.0.0.1\r\nHost: shop.example\r\n", 403),
        (b"Host:\r\n", 403),
        (b"", 403),
    ],
)
async def test_no_page_orders_anything(method: str, headers: bytes, status: int) -> None:
    ordered: list[str] = []

    def order(method: str) -> Reply:
        ordered.append(method)
        return Reply(200, b"done\n")

    server = HttpServer({"/drainz": order, "/livez": order}, orders=["/drainz"])
    port = await server.listen("127.0.0.1", 0)
    try:
        for path, expected in ((b"/drainz", status), (b"/livez", 405)):
            answer = await talk(
                port, method.encode() + b" " + path + b" HTTP/1.1\r\n" + headers + b"\r\n"
            )
            assert answer.startswith(b"HTTP/1.1 %d " % expected)
        assert ordered == ([method] if status == 200 else [])
        assert (await talk(port, b"GET /drainz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    finally:
        await server.close()


@pytest.mark.foreign
@pytest.mark.parametrize(
    ("peer", "own", "may"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.3.0.9", "127.0.0.1", True),
        ("::1", "::1", True),
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.8", "10.0.0.7", False),
        ("", "10.0.0.7", False),
    ],
)
def test_orders_come_from_this_machine(peer: str, own: str, may: bool) -> None:
    assert (why_no_order([("host", "10.0.0.7")], peer=peer, own=own) is None) is may
