"""Errors as RFC 9457 problem documents; a type never changes its meaning.

``urn:failback:collector:<name>``: a shipper keeps what a proxy refused and sets aside what a
collector refused for good, so it must be able to tell their answers apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from failback.client.consumelog.upload.collector_client import PROBLEM_PREFIX

MEDIA_TYPE: Final = "application/problem+json"

# name: (status, title)
KINDS: Final[dict[str, tuple[int, str]]] = {
    "hash-mismatch": (400, "The body is not what its hash says"),
    "cut-upload": (400, "The upload ended before its body did"),
    "unauthenticated": (401, "A bearer token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "not-found": (404, "There is nothing here"),
    "method-not-allowed": (405, "This method is not for this resource"),
    "too-slow": (408, "The upload took too long"),
    "other-content": (409, "The segment is stored with other content"),
    "process-number-taken": (409, "The process number belongs to another process of the run"),
    "run-closed": (409, "The run is closed"),
    "run-expired": (409, "The run was deleted by retention"),
    "gaps": (409, "Records are missing"),
    "too-large": (413, "The segment is too large"),
    "unsupported-type": (415, "The body must be an Arrow stream or a Parquet file"),
    "bad-request": (422, "The request is not valid"),
    "bad-segment": (422, "The segment is not valid"),
    "busy": (429, "Too much is under way"),
    "not-ready": (503, "Nothing can be stored now"),
    "store-failed": (503, "The disk failed"),
    "store-full": (507, "The store is full"),
}


class Problem(Exception):
    """One refusal. ``extra`` are further members of the document."""

    kinds: ClassVar[Mapping[str, tuple[int, str]]] = KINDS
    prefix: ClassVar[str] = PROBLEM_PREFIX

    def __init__(
        self,
        name: str,
        detail: str,
        *,
        retry_after_seconds: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.status, self.title = self.kinds[name]
        self.detail = detail
        self.retry_after_seconds = retry_after_seconds
        self.extra = dict(extra or {})
        super().__init__(f"{name}: {detail}")

    def document(self) -> dict[str, Any]:
        return {
            "type": f"{self.prefix}{self.name}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            **self.extra,
        }

    def headers(self) -> dict[str, str]:
        headers = {}
        if self.retry_after_seconds is not None:
            headers["Retry-After"] = str(self.retry_after_seconds)
        if self.status == 408:
            headers["Connection"] = "close"
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


def problems(
    *names: str, kinds: Mapping[str, tuple[int, str]] = KINDS
) -> dict[int | str, dict[str, Any]]:
    """The declaration of these refusals, for ``responses=``."""
    declared: dict[int | str, dict[str, Any]] = {}
    for name in names:
        status, title = kinds[name]
        known = declared.get(status)
        text = f"{known['description']}; {title} ({name})" if known else f"{title} ({name})"
        declared[status] = {
            "description": text,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        if name in {"busy", "store-full", "too-many"}:
            declared[status]["headers"] = {
                "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait."}
            }
    return declared
