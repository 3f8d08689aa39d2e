"""What is said of an API server that refuses, or of a proxy that answers in its place."""

from __future__ import annotations

import pytest
from kubernetes.client import ApiException

from failback.chaos.errors import TargetError
from failback.chaos.targets.kube.api import KubeApi, _asking
from failback.kube.blocking import BlockingKube
from failback.kube.errors import ApiError, refusal


@pytest.mark.parametrize("body", ["null", "[]", '"busy"', "3", "not JSON", ""])
def test_a_body_that_is_no_status_is_told_by_its_phrase(body: str) -> None:
    error = refusal("get", "pods", 502, body, {}, "Bad Gateway")
    assert (error.code, error.message) == (502, "Bad Gateway")


def test_a_status_is_told_in_its_own_words() -> None:
    error = refusal("get", "pods", 404, '{"reason": "NotFound", "message": "no pods"}', {})
    assert str(error) == "get pods: 404 NotFound: no pods"


def test_a_refused_exec_is_not_taken_for_a_server_that_is_away() -> None:
    said = 'Handshake status 500: container not found ("broker")'
    with pytest.raises(TargetError) as raised, _asking("exec ls in demo-0"):
        raise ApiException(status=0, reason=said)
    assert str(raised.value) == f"exec ls in demo-0: {said}"


def test_a_namespace_that_does_not_exist_is_not_one_without_a_label() -> None:
    class Nothing(BlockingKube):
        def __init__(self) -> None:
            pass

        def get(self, kind: str, namespace: str, name: str) -> None:
            return None

    api = KubeApi.__new__(KubeApi)
    api.namespace, api._kube = "typo", Nothing()
    with pytest.raises(TargetError, match="get namespace typo: 404"):
        api.namespace_labels()


class _Rest:
    def request(self, *_: object, **__: object) -> object:
        raise ApiException(status=0, reason="SSLError\ncertificate has expired")


class _Client:
    rest_client = _Rest()
    configuration = type("Configuration", (), {"host": "https://api"})

    def update_params_for_auth(self, *_: object) -> None:
        pass


def test_a_certificate_that_is_refused_is_named_in_one_line() -> None:
    kube = BlockingKube.__new__(BlockingKube)
    kube._client, kube._timeout_seconds = _Client(), 1.0
    with pytest.raises(ApiError) as raised:
        kube.get("Pod", "shop", "demo-0")
    assert raised.value.message == "SSLError: certificate has expired"
