"""What the API server says when it refuses, or that it did not answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from failback.common.numbers import whole
from failback.protocol.errors import FailbackError


class ApiError(FailbackError):
    """The API server refused, or did not answer.

    Attributes:
        code: HTTP status; 0 when there was no answer.
        reason: ``NotFound``, ``Conflict``, ``Timeout`` ...
        retry_after: Seconds the server asks to wait, or ``None``.
    """

    def __init__(
        self,
        verb: str,
        resource: str,
        code: int,
        reason: str,
        message: str,
        *,
        causes: tuple[Mapping[str, Any], ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{verb} {resource}: {code} {reason}: {message}")
        self.verb = verb
        self.resource = resource
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after = retry_after

    @property
    def is_field_conflict(self) -> bool:
        """Another field manager owns fields of this one."""
        return self.code == 409 and any(
            cause.get("reason") == "FieldManagerConflict" for cause in self.causes
        )


def refusal(
    verb: str,
    resource: str,
    code: int,
    raw: bytes | str,
    headers: Mapping[str, str],
    phrase: str = "",
) -> ApiError:
    """Return the error of an answer.

    Args:
        raw: The body: a Status, or what something on the way says.
        phrase: The reason phrase of HTTP, where there is one.
    """
    try:
        status = json.loads(raw)
    except ValueError:
        status = None
    if not isinstance(status, dict):  # a proxy on the way answered
        text = raw if isinstance(raw, str) else raw.decode(errors="replace")
        status = {"message": phrase or text[:256]}
    details = status.get("details") or {}
    after = headers.get("Retry-After", "")
    return ApiError(
        verb,
        resource,
        code,
        str(status.get("reason") or ""),
        str(status.get("message") or phrase),
        causes=tuple(details.get("causes") or ()),
        retry_after=whole(after),
    )
