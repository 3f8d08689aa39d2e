"""An event loop whose time jumps, with a network that lives in memory.

Timers fire in the order of their times without anyone waiting, so a test of a thirty-second
protocol takes milliseconds and gives the same result on a busy machine. Connections made through
the loop (``create_connection``, ``create_server``, ``asyncio.open_connection`` ...) go through
:class:`MemoryNetwork` and never touch a socket: code under test runs unchanged.

    @virtual_time
    async def test_something() -> None: ...
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec

from failback.client.clock import Clock

P = ParamSpec("P")
Address = tuple[str, int]

LATENCY_SECONDS = 0.0005
"""One way, per write. Above zero, so that a loop that answers itself makes time pass."""


class LoopClock(Clock):
    """All three readings from the running loop: for loops with virtual time.

    Args:
        epoch_ms: The wall time at loop time 0.
    """

    def __init__(self, epoch_ms: int = 1_700_000_000_000) -> None:
        self._epoch_ms = epoch_ms

    def wall_ms(self) -> int:
        return self._epoch_ms + round(self.now() * 1000)

    def mono_ns(self) -> int:
        return round(self.now() * 1_000_000_000)


class NothingLeftToHappen(RuntimeError):
    """The test waits for something that no timer and no connection will bring about."""


class _JumpingSelector(selectors.DefaultSelector):
    """Polls real files without waiting and lets the loop's time jump instead."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise NothingLeftToHappen("no timer is set")
            if timeout > 0:
                self.loop.jump_to_next_timer()
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at time 0. Executor jobs run at once, on the loop's thread."""

    def __init__(self) -> None:
        self._virtual_now = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)
        self.network = MemoryNetwork(self)
        self.errors: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    def time(self) -> float:
        return self._virtual_now

    def jump_to_next_timer(self) -> None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if scheduled:
            self._virtual_now = max(self._virtual_now, scheduled[0].when())

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return await self.network.connect(protocol_factory, (host, port))

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return self.network.listen(protocol_factory, (host, port))


class MemoryServer:
    """What ``create_server`` returns."""

    def __init__(
        self, network: MemoryNetwork, factory: Callable[[], asyncio.Protocol], address: Address
    ) -> None:
        self.factory = factory
        self.address = address
        self.sockets: tuple[Any, ...] = ()
        self._network = network

    def close(self) -> None:
        """Refuse further connections; existing ones go on."""
        self._network.forget(self)

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""

    def is_serving(self) -> bool:
        return self._network.listener(self.address) is self


class MemoryNetwork:
    """Listeners by address, and the faults that tests inject."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop
        self._listeners: dict[Address, MemoryServer] = {}
        self._black_holes: set[Address] = set()
        self._next_port = 40_000

    def listen(self, factory: Callable[[], asyncio.Protocol], address: Address) -> MemoryServer:
        if address[1] == 0:
            self._next_port += 1
            address = (address[0], self._next_port)
        if address in self._listeners:
            raise OSError(98, f"address {address} is in use")
        server = MemoryServer(self, factory, address)
        self._listeners[address] = server
        return server

    def listener(self, address: Address) -> MemoryServer | None:
        return self._listeners.get(address)

    def forget(self, server: MemoryServer) -> None:
        if self._listeners.get(server.address) is server:
            del self._listeners[server.address]

    def swallow(self, address: Address, *, swallow: bool = True) -> None:
        """Lose every packet to and from ``address``: connects hang, connections fall silent."""
        (self._black_holes.add if swallow else self._black_holes.discard)(address)

    def is_swallowed(self, *addresses: Address) -> bool:
        return any(address in self._black_holes for address in addresses)

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], address: Address
    ) -> tuple[MemoryTransport, asyncio.Protocol]:
        await asyncio.sleep(LATENCY_SECONDS)
        while self.is_swallowed(address):  # noqa: ASYNC110 - a SYN is sent again and again
            await asyncio.sleep(1)
        server = self._listeners.get(address)
        if server is None:
            raise ConnectionRefusedError(111, f"Connect call failed {address}")
        self._next_port += 1
        local = ("127.0.0.1", self._next_port)
        here, there = factory(), server.factory()
        near = MemoryTransport(self._loop, self, here, local, address)
        far = MemoryTransport(self._loop, self, there, address, local)
        near.peer, far.peer = far, near
        there.connection_made(far)
        here.connection_made(near)
        return near, here


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        loop: VirtualTimeLoop,
        network: MemoryNetwork,
        protocol: asyncio.Protocol,
        local: Address,
        remote: Address,
    ) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self.peer: MemoryTransport
        self._loop = loop
        self._network = network
        self._protocol = protocol
        self._inbox: deque[bytes | None] = deque()
        self._ends = (local, remote)
        self._is_paused = False
        self._is_closing = False
        self._is_lost = False

    def write(self, data: Any) -> None:
        if not self._is_closing and data:
            self._send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Send FIN behind what was written."""
        if not self._is_closing:
            self._is_closing = True
            self._send(None)
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self.close()

    def reset(self) -> None:
        """Send RST: both ends lose the connection at once."""
        self._is_closing = True
        self._loop.call_soon(self._lose, None)
        if not self._network.is_swallowed(*self._ends):
            self._loop.call_soon(self.peer._lose, ConnectionResetError(104, "reset by peer"))

    def is_closing(self) -> bool:
        return self._is_closing

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._loop.call_soon(self._deliver)

    def is_reading(self) -> bool:
        return not self._is_paused

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Buffers have no limit here."""

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def _send(self, data: bytes | None) -> None:
        if not self._network.is_swallowed(*self._ends):
            self.peer._inbox.append(data)
            self._loop.call_later(LATENCY_SECONDS, self.peer._deliver)

    def _deliver(self) -> None:
        """Hand over what has arrived, in the order it was written."""
        while self._inbox and not self._is_paused and not self._is_lost:
            data = self._inbox.popleft()
            if self._is_closing:
                continue
            if data is None:
                self._protocol.eof_received()
                self.close()
            else:
                self._protocol.data_received(data)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_closing = self._is_lost = True
            self._protocol.connection_lost(error)


def run_virtual(main: Coroutine[Any, Any, None]) -> None:
    """Run ``main`` in virtual time; errors that only reached the loop's handler fail it too."""
    loop: VirtualTimeLoop | None = None

    def make_loop() -> VirtualTimeLoop:
        nonlocal loop
        loop = VirtualTimeLoop()
        return loop

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main)
        assert loop is not None
        errors = loop.errors
    assert not errors, errors


def virtual_time(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Make a plain test function of an async one that runs in virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            await test(*args, **kwargs)

        run_virtual(main())

    return run


def network() -> MemoryNetwork:
    """The running virtual loop's network."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop.network


def now() -> float:
    """Seconds since the loop began."""
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], Any], within: float = 60.0, every: float = 0.01) -> None:
    """Let virtual time pass until ``condition`` holds.

    Raises:
        AssertionError: It did not within ``within`` virtual seconds.
    """
    deadline = now() + within
    while not condition():
        assert now() < deadline, f"not within {within} s: {condition}"
        await asyncio.sleep(every)
