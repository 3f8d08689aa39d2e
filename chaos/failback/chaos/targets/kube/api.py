"""The few calls to the API server that the harness makes; the only importer of ``kubernetes`` here.

Blocking, each with a time limit, usable from several threads. Objects are plain JSON data. Every
refusal becomes a ``TargetError`` with the server's words; "not there" is ``None``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import websocket
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from kubernetes.stream import stream

from failback.chaos.errors import TargetError

Object = dict[str, Any]

REQUEST_SECONDS: Final = 10.0
GROUP: Final = "failback.dev"
VERSION: Final = "v1alpha1"
# As plain objects: the library's own Lease writes whole seconds in a form that the server refuses.
_LEASES: Final = ("coordination.k8s.io", "v1", "leases")
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_ERROR_CHANNEL: Final = 3
_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_config: Any = config  # none of the three has types
_stream: Any = stream
_Watch: Any = watch.Watch


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command inside a container did."""

    code: int
    stdout: bytes
    stderr: str


class KubeApi:
    """One namespace of one cluster, as one account sees it."""

    def __init__(self, configuration: Any, namespace: str) -> None:
        websocket.setdefaulttimeout(REQUEST_SECONDS)  # else a node that is away blocks for ever
        self.namespace = namespace
        self._configuration = configuration
        self._client: Any = client.ApiClient(configuration)
        self._core: Any = client.CoreV1Api(self._client)
        self._custom: Any = client.CustomObjectsApi(self._client)
        # The library swaps a method of its client while it opens a stream: one client per thread.
        self._streams = threading.local()

    @classmethod
    def connect(cls, namespace: str, *, kubeconfig: str | None = None) -> KubeApi:
        """Use the pod's own account inside a cluster, else the kubeconfig of the user.

        Raises:
            TargetError: There is neither.
        """
        configuration = client.Configuration()
        try:
            if kubeconfig is None and _inside_a_pod():
                _config.load_incluster_config(client_configuration=configuration)
            else:
                _config.load_kube_config(kubeconfig, client_configuration=configuration)
        except (ConfigException, OSError) as error:
            raise TargetError("find the Kubernetes API server", str(error)) from error
        return cls(configuration, namespace)

    def close(self) -> None:
        self._client.close()

    # --- pods ------------------------------------------------------------------------------------

    def pods(self, selector: str) -> list[Object]:
        """All pods with these labels."""
        with _asking(f"list pods {selector}"):
            found = self._core.list_namespaced_pod(
                self.namespace, label_selector=selector, _request_timeout=REQUEST_SECONDS
            )
            return [self._plain(each) for each in found.items]

    def pod(self, name: str) -> Object | None:
        with _asking(f"get pod {name}"):
            found: Object | None = self._or_none(self._core.read_namespaced_pod, name)
            return found

    def delete_pod(self, name: str, uid: str, grace_seconds: int) -> None:
        """Delete exactly this pod; gone already is success."""
        body = client.V1DeleteOptions(
            grace_period_seconds=grace_seconds, preconditions=client.V1Preconditions(uid=uid)
        )
        with _asking(f"delete pod {name}"):
            self._or_none(self._core.delete_namespaced_pod, name, body=body)

    def watch_pod(self, name: str, version: str, seconds: float) -> Iterator[tuple[str, Object]]:
        """Yield ``(ADDED | MODIFIED | DELETED, pod)`` after a resourceVersion, for ``seconds``."""
        events: Any = _Watch()
        try:
            with _asking(f"watch pod {name}"):
                for event in events.stream(
                    self._core.list_namespaced_pod,
                    self.namespace,
                    field_selector=f"metadata.name={name}",
                    resource_version=version,
                    timeout_seconds=max(1, round(seconds)),
                    _request_timeout=seconds + REQUEST_SECONDS,
                ):
                    yield str(event["type"]), self._plain(event["object"])
        finally:
            events.stop()

    def log(self, pod: str, container: str, since_seconds: int | None) -> str:
        with _asking(f"log of {pod}"):
            answer = self._core.read_namespaced_pod_log(
                pod,
                self.namespace,
                container=container,
                since_seconds=since_seconds,
                timestamps=True,
                _request_timeout=REQUEST_SECONDS,
            )
            return str(answer)

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
            self._streams.core = client.CoreV1Api(client.ApiClient(self._configuration))
        return self._streams.core

    # --- the namespace, the custom resource, the lease ------------------------------------------

    def namespace_labels(self) -> dict[str, str]:
        with _asking(f"get namespace {self.namespace}"):
            found = self._core.read_namespace(self.namespace, _request_timeout=REQUEST_SECONDS)
            return dict(found.metadata.labels or {})

    def cluster(self, name: str) -> Object | None:
        """The BrokerCluster."""
        with _asking(f"get brokercluster {name}"):
            found: Object | None = self._or_none(
                self._custom.get_namespaced_custom_object,
                GROUP,
                VERSION,
                self.namespace,
                "brokerclusters",
                name,
                namespaced=False,
            )
            return found

    def patch_cluster_annotations(
        self, name: str, annotations: Mapping[str, str | None], version: str
    ) -> bool:
        """Set annotations (``None`` removes one); false when somebody else wrote in between."""
        body = {"metadata": {"annotations": dict(annotations), "resourceVersion": version}}
        try:
            self._custom.patch_namespaced_custom_object(
                GROUP,
                VERSION,
                self.namespace,
                "brokerclusters",
                name,
                body,
                _request_timeout=REQUEST_SECONDS,
            )
        except ApiException as error:
            if error.status == _CONFLICT:
                return False
            raise TargetError(f"annotate brokercluster {name}", _words(error)) from error
        return True

    def lease(self, name: str) -> Object | None:
        with _asking(f"get lease {name}"):
            found: Object | None = self._or_none(
                self._custom.get_namespaced_custom_object,
                *_LEASES[:2],
                self.namespace,
                _LEASES[2],
                name,
                namespaced=False,
            )
            return found

    def create_lease(self, body: Object) -> bool:
        """False when there is one already."""
        call = self._custom.create_namespaced_custom_object
        return self._write_lease(body, call, body)

    def replace_lease(self, body: Object) -> bool:
        """Write a lease that was read before; false when somebody else wrote in between."""
        call = self._custom.replace_namespaced_custom_object
        return self._write_lease(body, call, body["metadata"]["name"], body)

    def _write_lease(self, body: Object, call: Any, *arguments: Any) -> bool:
        try:
            call(
                *_LEASES[:2],
                self.namespace,
                _LEASES[2],
                *arguments,
                _request_timeout=REQUEST_SECONDS,
            )
        except ApiException as error:
            if error.status == _CONFLICT:
                return False
            what = f"write lease {body['metadata']['name']}"
            raise TargetError(what, _words(error)) from error
        return True

    # --- helpers ---------------------------------------------------------------------------------

    def _or_none(self, call: Any, *arguments: Any, namespaced: bool = True, **more: Any) -> Any:
        if namespaced:
            arguments = (*arguments, self.namespace)
        try:
            return self._plain(call(*arguments, **more, _request_timeout=REQUEST_SECONDS))
        except ApiException as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def _plain(self, found: Any) -> Any:
        return self._client.sanitize_for_serialization(found)


class _asking:  # noqa: N801 - reads as a statement
    """``with _asking("get pod a")``: what the server refuses becomes ``TargetError``."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ApiException):
            raise TargetError(self._what, _words(error)) from error
        if isinstance(error, (OSError, websocket.WebSocketException)) or _is_urllib3(error):
            raise TargetError(self._what, f"the API server is away: {error}") from error


def _is_urllib3(error: BaseException | None) -> bool:
    return type(error).__module__.partition(".")[0] == "urllib3"


def _words(error: Any) -> str:
    """The server's own sentence: the message of its Status, or the reason."""
    try:
        message = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        message = str(error.reason or error)
    return f"{error.status}: {message}" if error.status else str(message)


def _exit_code(status: bytes) -> int | None:
    """Read the Status object that ends an exec; ``None`` when there is none."""
    try:
        said = json.loads(status)
        if said["status"] == "Success":
            return 0
        return int(said["details"]["causes"][0]["message"])
    except (ValueError, KeyError, IndexError, TypeError):
        return None


def _inside_a_pod() -> bool:
    return _TOKEN.exists()
