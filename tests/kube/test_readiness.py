"""The operator says that it is ready once it knows what there is, and not before."""

from __future__ import annotations

import urllib.error

from tests.support.common.polling import wait_until
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.proxy import MisbehavingProxy
from tests.support.operator.operator_process import OperatorProcess, operator_identity


def readiness(running: OperatorProcess) -> str:
    """Return the words of ``/readyz``, empty while nobody answers."""
    try:
        return running.get("/readyz")
    except urllib.error.HTTPError as refusal:
        with refusal:
            return f"{refusal.code} {refusal.read().decode()}"
    except OSError:
        return ""


def test_it_is_not_ready_before_every_list_has_arrived(
    namespace: Namespace, proxy: MisbehavingProxy
) -> None:
    proxy.answer(500, verb="list", resource="topics")
    running = OperatorProcess(namespace, operator_identity(namespace, server=proxy.url))
    try:
        running.start()
        wait_until(lambda: readiness(running) == "503 not listed yet: topics", "the others", 60)
        proxy.calm()
        wait_until(lambda: readiness(running) == "ok", "the last list", 60)
    finally:
        running.process.dispose()
