"""Ports of this machine that lead into pods through the API server, as `kubectl port-forward` has.

Blocking, for programs of short life: a thread accepts, one more carries each direction of each
connection. Needs the right to create ``pods/portforward``.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Any, Final

import websocket
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import portforward

from failback.kube.errors import ApiError

_LOCALHOST: Final = "127.0.0.1"
_CHUNK_BYTES: Final = 64 * 1024
_OPEN_SECONDS: Final = 10.0
_portforward: Any = portforward  # has no types


class Forwards:
    """The open ports; :meth:`close` ends them with all their connections."""

    def __init__(self, configuration: Any, namespace: str) -> None:
        """Open nothing yet.

        Args:
            configuration: Of the API server, as :func:`configuration_of` returns it.
        """
        websocket.setdefaulttimeout(_OPEN_SECONDS)  # else a node that is away blocks for ever
        self._configuration = configuration
        self._namespace = namespace
        self._listeners: list[socket.socket] = []
        self.problems: dict[str, str] = {}
        """Pod → why it could not be reached last."""

    def __enter__(self) -> Forwards:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def open(self, pod: str, port: int) -> str:
        """Return ``host:port`` on this machine that leads to a port of a pod.

        Whether the pod can be reached shows with the first connection, which is cut if not.
        """
        listener = socket.create_server((_LOCALHOST, 0))
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener, pod, port), daemon=True).start()
        return f"{_LOCALHOST}:{listener.getsockname()[1]}"

    def close(self) -> None:
        """Accept no more; connections end with their clients."""
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            listener.close()

    def _accept(self, listener: socket.socket, pod: str, port: int) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near, pod, port), daemon=True).start()

    def _serve(self, near: socket.socket, pod: str, port: int) -> None:
        with near:
            try:
                far = self._connect(pod, port)
            except ApiError as error:
                self.problems[pod] = error.message
                return
            self.problems.pop(pod, None)
            back = threading.Thread(target=_carry, args=(far, near), daemon=True)
            back.start()
            _carry(near, far)
            back.join(_OPEN_SECONDS)

    def _connect(self, pod: str, port: int) -> socket.socket:
        # The library swaps a method of its client while it opens a stream: one client for each.
        core = client.CoreV1Api(client.ApiClient(self._configuration))
        try:
            stream: Any = _portforward(
                core.connect_get_namespaced_pod_portforward, pod, self._namespace, ports=str(port)
            )
        except (ApiException, OSError) as error:
            words = str(error.reason if isinstance(error, ApiException) else error)
            raise ApiError("create", "pods/portforward", 0, "Unreachable", words) from error
        found: socket.socket = stream.socket(port)
        found.setblocking(True)
        return found


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Carry bytes one way until either side ends; then end both."""
    try:
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
    except OSError:
        pass  # the other direction, or the peer, ended it
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
