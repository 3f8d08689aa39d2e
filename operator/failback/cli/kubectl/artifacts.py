"""Pages of a report, fetched from the volume that its Job wrote them to.

The Job's pod has ended, so another one reads: the same image, user and volume, and a shell that
prints each page in base64 between two lines. Its log is the way out; it is deleted in any case.
"""

from __future__ import annotations

import base64
import copy
import time
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from failback.cli.kubectl.access import Access, Object
from failback.cli.shared.asking import NotThere, Unreachable

_PAGE: Final = "report.html"
_BEGIN: Final = "-----BEGIN PAGE "
_END: Final = "-----END PAGE-----"
_SCRIPT: Final = f"""\
find "$1" -name {_PAGE} | sort | while read -r file; do
  echo "{_BEGIN}$file"; base64 "$file" || exit 1; echo "{_END}"
done
"""
_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.5
_OVER: Final = ("Succeeded", "Failed")


def pages(api: Access, report: Object, folder: Path) -> list[Path]:
    """Fetch every page of a report into a folder; return them in order of their names.

    Raises:
        NotThere: The report has no pages, or their place is not known any more.
        Unreachable: The pod that reads them did not end in time.
    """
    name = str(report["metadata"]["name"])
    uri = str((report.get("status") or {}).get("artifactUri") or "")
    if not uri:
        raise NotThere(f"{name} has no pages yet")
    place = urlsplit(uri)
    if place.scheme not in ("file", ""):
        raise NotThere(f"the pages are at {uri}: fetch them with that store's own tools")
    where = unquote(place.path)
    pod = _reader(_job_of(api, report, uri), api.namespace, name, where)
    made = api.kube.create(pod)
    try:
        said = _said(api, str(made["metadata"]["name"]))
    finally:
        metadata = made["metadata"]
        api.kube.delete("Pod", api.namespace, str(metadata["name"]), str(metadata["uid"]), 0)
    found = parse(said)
    if not found:
        raise NotThere(f"there is no {_PAGE} at {where}: the volume says: {said.strip()[:200]}")
    return [_write(folder, where, path, content) for path, content in found.items()]


def _job_of(api: Access, report: Object, uri: str) -> Object:
    uid = report["metadata"]["uid"]
    for job in api.kube.list_all("Job", api.namespace):
        if any(each.get("uid") == uid for each in job["metadata"].get("ownerReferences") or ()):
            return job
    raise NotThere(f"its Job is gone, which says on which volume the pages are: {uri}")


def _reader(job: Object, namespace: str, report: str, where: str) -> dict[str, Any]:
    """Return the pod that prints the pages: the Job's own, with a shell instead of its program."""
    spec = copy.deepcopy(job["spec"]["template"]["spec"])
    spec["restartPolicy"] = "Never"
    spec.pop("serviceAccountName", None)
    spec["automountServiceAccountToken"] = False
    container = spec["containers"][0]
    for key in ("ports", "env", "livenessProbe", "readinessProbe", "startupProbe"):
        container.pop(key, None)
    container["command"] = ["sh", "-c", _SCRIPT, "sh", where]
    container["args"] = []
    for mount in container.get("volumeMounts") or ():
        if mount["name"] == "runs":
            mount["readOnly"] = True
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{report[:40]}-pages-", "namespace": namespace},
        "spec": spec,
    }


def _said(api: Access, pod: str) -> str:
    """Wait for the pod's end; return what it printed."""
    until = time.monotonic() + _SECONDS
    phase = ""
    while time.monotonic() < until:
        item = api.kube.get("Pod", api.namespace, pod)
        phase = str(((item or {}).get("status") or {}).get("phase") or "")
        if phase in _OVER:
            return api.kube.text("Pod", api.namespace, pod, "log", {})
        time.sleep(_POLL_SECONDS)
    raise Unreachable(f"the pod {pod}, which reads the volume, is {phase or 'nowhere'}")


def parse(said: str) -> dict[str, bytes]:
    """Return the pages that a reader printed, by their paths."""
    found: dict[str, bytes] = {}
    path, lines = "", list[str]()
    for line in said.splitlines():
        if line.startswith(_BEGIN):
            path, lines = line.removeprefix(_BEGIN), []
        elif line == _END and path:
            found[path] = base64.b64decode("".join(lines))
            path = ""
        else:
            lines.append(line)
    return found


def _write(folder: Path, where: str, path: str, content: bytes) -> Path:
    """Write a page where it lay below the artifact's folder; never outside ``folder``."""
    below = PurePosixPath(path)
    if below.is_relative_to(where):
        below = below.relative_to(where)
    parts = [each for each in below.parts if each not in ("/", "..", ".")]
    target = folder.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target
