"""The few calls to the API server that the harness makes: requests by failback.kube, and exec.

Blocking, each with a time limit, usable from several threads. Objects are plain JSON data. Every
refusal becomes a ``TargetError`` with the server's words; "not there" is ``None``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import websocket
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream

from failback.chaos.errors import TargetError
from failback.kube.blocking import BlockingKube
from failback.kube.errors import ApiError, refusal
from failback.kube.resources import Object

REQUEST_SECONDS: Final = 10.0
_CONFLICT: Final = 409
_ERROR_CHANNEL: Final = 3
_stream: Any = stream  # has no types


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command inside a container did."""

    code: int
    stdout: bytes
    stderr: str


class KubeApi:
    """One namespace of one cluster, as one account sees it."""

    def __init__(self, kube: BlockingKube, namespace: str) -> None:
        websocket.setdefaulttimeout(REQUEST_SECONDS)  # else a node that is away blocks for ever
        self.namespace = namespace
        self._kube = kube
        # The library swaps a method of its client while it opens a stream: one client per thread.
        self._streams = threading.local()

    @classmethod
    def connect(cls, namespace: str, *, kubeconfig: str | None = None) -> KubeApi:
        """Use the pod's own account inside a cluster, else the kubeconfig of the user.

        Raises:
            TargetError: There is neither.
        """
        try:
            kube = BlockingKube.connect(kubeconfig, timeout_seconds=REQUEST_SECONDS)
        except ApiError as error:
            raise TargetError("find the Kubernetes API server", error.message) from error
        return cls(kube, namespace)

    def close(self) -> None:
        self._kube.close()

    # --- pods ------------------------------------------------------------------------------------

    def pods(self, selector: str) -> list[Object]:
        """All pods with these labels."""
        with _asking(f"list pods {selector}"):
            return self._kube.list_all("Pod", self.namespace, selector)

    def pod(self, name: str) -> Object | None:
        with _asking(f"get pod {name}"):
            return self._kube.get("Pod", self.namespace, name)

    def exec(
        self, pod: str, container: str, argv: Sequence[str], *, seconds: float = REQUEST_SECONDS
    ) -> ExecResult:
        """Run a command in a container and wait for its end.

        Raises:
            TargetError: It could not be started, or did not end in time.
        """
        what = f"exec {' '.join(argv)} in {pod}"
        with _asking(what):
            running = _stream(
                self._core_of_this_thread().connect_get_namespaced_pod_exec,
                pod,
                self.namespace,
                container=container,
                command=list(argv),
                stdin=False,
                stdout=True,
                stderr=True,
                tty=False,
                binary=True,
                _preload_content=False,
            )
        try:
            running.run_forever(timeout=seconds)
            if running.is_open():
                raise TargetError(what, f"it did not end within {seconds:g} s")
            stdout, stderr = running.read_stdout(), running.read_stderr()
            code = _exit_code(running.read_channel(_ERROR_CHANNEL))
        except (websocket.WebSocketException, OSError, ValueError) as error:
            raise TargetError(what, f"the connection broke: {error}") from error
        finally:
            running.close()
            running.sock.shutdown()  # close() leaves a socket open that the peer closed first
        if code is None:
            raise TargetError(what, "nobody said how it ended")
        return ExecResult(code, bytes(stdout), bytes(stderr).decode("utf-8", "replace"))

    def _core_of_this_thread(self) -> Any:
        if not hasattr(self._streams, "core"):
            self._streams.core = client.CoreV1Api(client.ApiClient(self._kube.configuration))
        return self._streams.core

    # --- the namespace, the custom resource, the lease ------------------------------------------

    def namespace_labels(self) -> dict[str, str]:
        with _asking(f"get namespace {self.namespace}"):
            found = self._kube.get("Namespace", "", self.namespace)
            if found is None:
                raise TargetError(f"get namespace {self.namespace}", "404: there is none")
            return dict(found["metadata"].get("labels") or {})

    def cluster(self, name: str) -> Object | None:
        """The BrokerCluster."""
        with _asking(f"get brokercluster {name}"):
            return self._kube.get("BrokerCluster", self.namespace, name)

    def patch_cluster_annotations(
        self, name: str, annotations: Mapping[str, str | None], version: str
    ) -> bool:
        """Set annotations (``None`` removes one); false when another client wrote in between."""
        body = {"metadata": {"annotations": dict(annotations), "resourceVersion": version}}
        with _asking(f"annotate brokercluster {name}"):
            return _unless_moved_on(
                lambda: self._kube.merge("BrokerCluster", self.namespace, name, body)
            )

    def serves(self, kind: str) -> bool:
        """Whether the API server has a kind of another project's."""
        with _asking(f"find {kind}"):
            return self._kube.serves(kind)

    def find(self, kind: str, name: str) -> Object | None:
        with _asking(f"get {kind} {name}"):
            return self._kube.get(kind, self.namespace, name)

    def create(self, body: Object) -> None:
        with _asking(f"create {body['kind']} {body['metadata']['name']}"):
            self._kube.create(body)

    def delete(self, kind: str, name: str) -> None:
        """Delete an object; none is as good."""
        if (found := self.find(kind, name)) is not None:
            with _asking(f"delete {kind} {name}"):
                self._kube.delete(kind, self.namespace, name, found["metadata"]["uid"], 0)

    def lease(self, name: str) -> Object | None:
        with _asking(f"get lease {name}"):
            return self._kube.get("Lease", self.namespace, name)

    def create_lease(self, body: Object) -> bool:
        """False when there is one already."""
        with _asking(f"write lease {body['metadata']['name']}"):
            return _unless_moved_on(lambda: self._kube.create(body))

    def replace_lease(self, body: Object) -> bool:
        """Write a lease that was read before; false when another client wrote in between."""
        with _asking(f"write lease {body['metadata']['name']}"):
            return _unless_moved_on(lambda: self._kube.replace(body))


def _unless_moved_on(write: Callable[[], object]) -> bool:
    """Write; false when the object exists or has changed since it was read."""
    try:
        write()
    except ApiError as error:
        if error.code == _CONFLICT:
            return False
        raise
    return True


def _words(error: ApiError) -> str:
    """Return the server's own sentence, or that there was no answer."""
    if error.code:
        return f"{error.code}: {error.message or error.reason}"
    return f"the API server does not answer: {error.message}"


@contextmanager
def _asking(what: str) -> Iterator[None]:
    """Make what the server refuses a ``TargetError`` that begins with ``what``."""
    try:
        yield
    except ApiError as error:
        raise TargetError(what, _words(error)) from error
    except ApiException as error:
        phrase = str(error.reason or error)
        if not error.status:  # a refused handshake: its status is in the words
            raise TargetError(what, phrase) from error
        said = refusal("create", "pods/exec", error.status, error.body or "", {}, phrase)
        raise TargetError(what, _words(said)) from error
    except (OSError, websocket.WebSocketException) as error:
        raise TargetError(what, f"the API server does not answer: {error}") from error


def _exit_code(status: bytes) -> int | None:
    """Read the Status object that ends an exec; ``None`` when there is none."""
    try:
        said = json.loads(status)
        if said["status"] == "Success":
            return 0
        return int(said["details"]["causes"][0]["message"])
    except (ValueError, KeyError, IndexError, TypeError):
        return None
