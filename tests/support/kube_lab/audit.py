"""Who wrote what, and what service accounts read: the API server's audit log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    verbs: [create, update, patch, delete, deletecollection]
  - level: None
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: Metadata
    userGroups: ["system:serviceaccounts"]
    verbs: [get, list, watch]
  - level: None
"""
READS = frozenset({"get", "list", "watch"})


@dataclass(frozen=True, slots=True)
class Write:
    """One request, mostly a write, as the API server logged it when it had answered."""

    verb: str
    group: str
    resource: str
    """With its subresource: ``pods/status``."""
    namespace: str
    name: str
    user_agent: str
    user: str
    code: int
    timestamp: str


class AuditLog:
    """Reads the log file; positions are byte offsets, so what came later can be told apart."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def mark(self) -> int:
        """Return the position of the next event."""
        return self.file.stat().st_size if self.file.exists() else 0

    def writes(
        self,
        *,
        since: int = 0,
        user_agent: str = "",
        user: str = "",
        namespace: str = "",
        resource: str = "",
    ) -> list[Write]:
        """Return write requests in order of their answers.

        Args:
            user_agent: Only those whose user agent starts with this.
            user: Only those of this user, e.g. ``system:serviceaccount:NS:NAME``.
        """
        return [
            write
            for write in self._read(since, user, namespace)
            if write.verb not in READS
            and write.user_agent.startswith(user_agent)
            and user in ("", write.user)
            and namespace in ("", write.namespace)
            and resource in ("", write.resource)
        ]

    def requests(self, user: str, *, since: int = 0) -> list[Write]:
        """Return the requests of a service account, reads too, in order of their answers."""
        return [item for item in self._read(since, user) if item.user == user and item.resource]

    def counts(self, *, since: int = 0) -> Counter[str]:
        """Return the number of write requests of each user agent."""
        return Counter(write.user_agent for write in self._read(since) if write.verb not in READS)

    def _read(self, since: int, *words: str) -> Iterator[Write]:
        """Yield the events whose lines have all the words; the rest is not worth decoding."""
        wanted = [word.encode() for word in words]
        if not self.file.exists():
            return
        with self.file.open("rb") as log:
            log.seek(since)
            for line in log:
                # The last one may still be on its way.
                if line.endswith(b"\n") and all(word in line for word in wanted):
                    yield _write(json.loads(line))


def _write(event: dict[str, Any]) -> Write:
    target = event.get("objectRef", {})
    resource = target.get("resource", "")
    if target.get("subresource"):
        resource = f"{resource}/{target['subresource']}"
    return Write(
        verb=event["verb"],
        group=target.get("apiGroup", ""),
        resource=resource,
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        user_agent=event.get("userAgent", ""),
        user=event.get("user", {}).get("username", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        timestamp=event["stageTimestamp"],
    )
