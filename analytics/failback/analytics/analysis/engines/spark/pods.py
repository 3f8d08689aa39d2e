"""Executors as pods: what a driver on a ``k8s://`` master says of them. Pure.

A user says it with variables, an operator with ``PYSPARK_SUBMIT_ARGS``; the latter's settings win.

    FAILBACK_SPARK_IMAGE            image of executors; the analytics image of this version
    FAILBACK_SPARK_NAMESPACE        where they run; the namespace of the driver's pod
    FAILBACK_SPARK_SERVICE_ACCOUNT  whose name they run under; Spark's default
    FAILBACK_SPARK_CLAIM            NAME:PATH, a claim that holds the lake, and where it is mounted
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Final

from failback.analytics.errors import EngineUnavailable, ReportInputError

PREFIX: Final = "k8s://"
IMAGE: Final = "FAILBACK_SPARK_IMAGE"
NAMESPACE: Final = "FAILBACK_SPARK_NAMESPACE"
ACCOUNT: Final = "FAILBACK_SPARK_SERVICE_ACCOUNT"
CLAIM: Final = "FAILBACK_SPARK_CLAIM"
SUBMIT_ARGS: Final = "PYSPARK_SUBMIT_ARGS"
TEMPLATE: Final = Path(__file__).with_name("pod.yaml")
"""Spark's pod template of driver and executors."""
_VOLUMES: Final = "spark.kubernetes.executor.volumes."
_MOUNT: Final = ".mount.path"


def pod_settings(environment: Mapping[str, str], version: str) -> dict[str, str]:
    """Spark settings for executors that are pods.

    Args:
        environment: Of the driver; ``POD_NAME`` and ``POD_NAMESPACE`` are its own pod's.
        version: This version of Failback.

    Raises:
        EngineUnavailable: ``FAILBACK_SPARK_CLAIM`` is not NAME:PATH.
    """
    own = environment.get("POD_NAMESPACE", "")
    namespace = environment.get(NAMESPACE) or own
    account = environment.get(ACCOUNT)
    found = {
        "spark.kubernetes.container.image": environment.get(IMAGE)
        or f"failback/analytics:{version}",
        "spark.kubernetes.executor.podTemplateFile": str(TEMPLATE),
    }
    if namespace:
        found["spark.kubernetes.namespace"] = namespace
    if environment.get("POD_NAME") and namespace == own:
        # Executors then belong to the driver's pod, and go when it goes, however it ended.
        found["spark.kubernetes.driver.pod.name"] = environment["POD_NAME"]
    if account:
        found["spark.kubernetes.authenticate.executor.serviceAccountName"] = account
    return found | _claim_settings(environment.get(CLAIM, ""))


def _claim_settings(text: str) -> dict[str, str]:
    if not text:
        return {}
    name, _, path = text.partition(":")
    if not name or not path.startswith("/"):
        raise EngineUnavailable(f"{CLAIM}={text}: must be NAME:PATH, such as failback-runs:/runs")
    volume = f"{_VOLUMES}persistentVolumeClaim.lake"
    return {f"{volume}.options.claimName": name, f"{volume}{_MOUNT}": path}


def submitted(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings in ``PYSPARK_SUBMIT_ARGS``."""
    words = shlex.split(environment.get(SUBMIT_ARGS, ""))
    pairs = [
        value.partition("=") for option, value in pairwise(words) if option in ("--conf", "-c")
    ]
    return {name: value for name, _, value in pairs}


def check_lakes(folders: Sequence[Path], settings: Mapping[str, str]) -> None:
    """Make sure that executors in pods find lakes that are folders.

    Args:
        folders: Of the lakes; none of those in object stores.
        settings: All that the session will have.

    Raises:
        ReportInputError: Nothing is mounted where a lake is.
    """
    mounted = [
        PurePosixPath(value)
        for name, value in settings.items()
        if name.startswith(_VOLUMES) and name.endswith(_MOUNT)
    ]
    for folder in folders:
        at = PurePosixPath(folder.absolute())
        if not any(at.is_relative_to(mount) for mount in mounted):
            raise ReportInputError(
                f"executors in pods cannot read it: keep the lake in an object store (--lake s3://"
                f"...), or name the claim that holds it, {CLAIM}=NAME:PATH",
                folder,
            )
