"""The holder of a taken port is named, and only the one on the address in question."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from failback.client.remoting.port_owner import (
    _unpack,
    bind_error,
    describe_listen_failure,
    port_owner,
)
from tests.support.net.ports import free_port

TAKEN = OSError(errno.EADDRINUSE, "taken")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_listener_is_found_from_its_address_and_from_everywhere(host: str) -> None:
    port = free_port()
    with socket.create_server((host, port)):
        me = f"pid {os.getpid()} ("
        for asked in ("127.0.0.1", "0.0.0.0", "localhost"):
            assert (port_owner(asked, port) or "").startswith(me)
        assert describe_listen_failure("127.0.0.1", port, TAKEN).startswith(
            f"cannot listen on 127.0.0.1:{port}: the port is taken; it is held by {me}"
        )


def test_a_listener_on_another_address_is_not_blamed() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.2", port)):
        assert port_owner("127.0.0.1", port) is None
        assert port_owner("127.0.0.2", port) is not None


@pytest.mark.parametrize(
    ("kernel", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("00000000000000000000000001000000", "::1"),
        ("0000000000000000FFFF00000100007F", "127.0.0.1"),
    ],
)
def test_the_kernel_s_addresses_are_read(kernel: str, address: str) -> None:
    assert _unpack(kernel) == address


def test_other_failures_name_no_holder() -> None:
    error = OSError(errno.EADDRNOTAVAIL, "no such address")
    message = describe_listen_failure("10.99.99.99", 1, error)
    assert message == "cannot listen on 10.99.99.99:1: no address of this machine"


def test_the_broker_s_error_names_what_to_change() -> None:
    taken = bind_error("127.0.0.1", 1, OSError(errno.EADDRINUSE, "x"), port_key="listenPort")
    foreign = bind_error("10.9.8.7", 1, OSError(errno.EADDRNOTAVAIL, "x"), port_key="listenPort")
    nowhere = bind_error("x.invalid", 1, socket.gaierror(-2, "not known"), port_key="listenPort")
    assert taken.field == "listenPort"
    assert "held by a process of another user" in str(taken)
    assert foreign.field == nowhere.field == "failbackBindAddress"
    assert os.strerror(errno.EADDRNOTAVAIL) in str(foreign)
    assert "not known" in str(nowhere)
