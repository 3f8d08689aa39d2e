"""Who holds a port."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from failback.broker.remoting.port_owner import bind_error
from failback.client.remoting.port_owner import port_owner

pytestmark = pytest.mark.unit


def test_a_listener_is_named_with_pid_and_command() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        owner = port_owner("127.0.0.1", port)
        assert owner is not None
        assert owner.startswith(f"pid {os.getpid()} (")
    assert port_owner("127.0.0.1", port) is None


def test_another_address_with_the_same_port_is_not_meant() -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        port = server.getsockname()[1]
        assert port_owner("127.0.0.1", port) is None
        assert port_owner("0.0.0.0", port) is not None
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert port_owner("127.0.0.1", server.getsockname()[1]) is not None


def test_the_error_names_what_to_change() -> None:
    taken = bind_error("127.0.0.1", 1, OSError(errno.EADDRINUSE, "x"), port_key="listenPort")
    foreign = bind_error("10.9.8.7", 1, OSError(errno.EADDRNOTAVAIL, "x"), port_key="listenPort")
    nowhere = bind_error("x.invalid", 1, socket.gaierror(-2, "not known"), port_key="listenPort")
    assert taken.field == "listenPort"
    assert "held by a process of another user" in str(taken)
    assert foreign.field == nowhere.field == "failbackBindAddress"
    assert os.strerror(errno.EADDRNOTAVAIL) in str(foreign)
    assert "not known" in str(nowhere)
