"""Parts of a pod that a resource hands on as they are: which fields they have, and of what type.

A field that a pod has not would be refused with the whole StatefulSet, after other objects were
made; here it is refused with its name, by the API server and locally alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import AfterValidator, WithJsonSchema

Schema = dict[str, Any]

LABEL_PART: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = rf"{LABEL_PART}(\.{LABEL_PART})*"
KEY: Final = rf"({SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
"""What a label, annotation or taint may be called."""
VALUE: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
"""What a label may say."""

_ID: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_FREE: Final[Schema] = {"type": "object"}
_TRUTH: Final[Schema] = {"type": "boolean"}


def _text(longest: int = 253, pattern: str = "") -> Schema:
    found: Schema = {"type": "string", "maxLength": longest}
    return {**found, "pattern": pattern} if pattern else found


def _one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def _mapping(required: Sequence[str] = (), **fields: Schema) -> Schema:
    found: Schema = {"type": "object", "properties": fields}
    return {**found, "required": list(required)} if required else found


def _part(required: Sequence[str] = (), **fields: Schema) -> Any:
    """Return the type of a mapping that has no other fields than these."""
    schema = _mapping(required, **fields)

    def check(value: Mapping[str, Any]) -> Mapping[str, Any]:
        if problem := _problem(value, schema):
            raise ValueError(problem)
        return value

    return Annotated[dict[str, Any], AfterValidator(check), WithJsonSchema(_described(schema))]


def _described(field: Schema) -> Schema:
    """Return a schema whose fields all say that Kubernetes has the word on them."""
    found = {"description": "As in a Pod.", **field}
    if "properties" in field:
        inner = field["properties"]
        found["properties"] = {name: _described(each) for name, each in inner.items()}
    if "items" in field:
        found["items"] = _described(field["items"])
    return found


def _problem(given: Any, field: Schema) -> str:
    """Return what is wrong with a value; empty when nothing is."""
    match field["type"]:
        case "integer":
            whole = isinstance(given, int) and not isinstance(given, bool)
            low, high = field["minimum"], field["maximum"]
            return "" if whole and low <= given <= high else f"must be from {low} to {high}"
        case "boolean":
            return "" if isinstance(given, bool) else "must be true or false"
        case "object":
            return _problem_of_mapping(given, field)
        case "array":
            if not isinstance(given, list) or len(given) > field["maxItems"]:
                return f"must be a list of at most {field['maxItems']}"
            return next(filter(None, (_problem(each, field["items"]) for each in given)), "")
        case _:
            return _problem_of_text(given, field)


def _problem_of_mapping(given: Any, field: Schema) -> str:
    if not isinstance(given, dict):
        return "must be a mapping"
    fields = field.get("properties")
    if fields is None:
        return ""
    for name, value in given.items():
        if name not in fields:
            return f'has no field "{name}", only {", ".join(fields)}'
        if problem := _problem(value, fields[name]):
            return f"{name} {problem}"
    missing = [name for name in field.get("required", ()) if name not in given]
    return f"{missing[0]} is required" if missing else ""


def _problem_of_text(given: Any, field: Schema) -> str:
    words = field.get("enum")
    if words is not None:
        return "" if given in words else f"must be one of {', '.join(words)}"
    if not isinstance(given, str) or len(given) > field["maxLength"]:
        return f"must be a text of at most {field['maxLength']} characters"
    pattern = field.get("pattern", "")
    return "" if not pattern or re.fullmatch(pattern, given) else f"must match {pattern}"


_PLAIN: Final = r"^[^\x00-\x1f\x7f]*$"
_SYSCTL: Final = r"^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$"
_PROFILE: Final = _mapping(
    ("type",),
    type=_one_of("RuntimeDefault", "Localhost", "Unconfined"),
    localhostProfile=_text(253, _PLAIN),
)
Toleration = _part(
    key=_text(317, rf"^({KEY})?$"),
    operator=_one_of("Exists", "Equal"),
    value=_text(63, rf"^({VALUE})?$"),
    effect=_one_of("NoSchedule", "PreferNoSchedule", "NoExecute"),
    tolerationSeconds={"type": "integer", "minimum": -(2**53), "maximum": 2**53},
)
TopologySpread = _part(
    ("maxSkew", "topologyKey", "whenUnsatisfiable"),
    maxSkew={"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
    topologyKey=_text(317, rf"^{KEY}$"),
    whenUnsatisfiable=_one_of("DoNotSchedule", "ScheduleAnyway"),
    labelSelector=_FREE,
    minDomains={"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
    matchLabelKeys={"type": "array", "maxItems": 16, "items": _text(317, rf"^{KEY}$")},
    nodeAffinityPolicy=_one_of("Honor", "Ignore"),
    nodeTaintsPolicy=_one_of("Honor", "Ignore"),
)
_TERMS: Final[Schema] = {"type": "array", "maxItems": 64, "items": _FREE}
_POD_AFFINITY: Final = _mapping(
    requiredDuringSchedulingIgnoredDuringExecution=_TERMS,
    preferredDuringSchedulingIgnoredDuringExecution=_TERMS,
)
Affinity = _part(nodeAffinity=_FREE, podAffinity=_POD_AFFINITY, podAntiAffinity=_POD_AFFINITY)
SecurityContext = _part(
    runAsUser=_ID,
    runAsGroup=_ID,
    runAsNonRoot=_TRUTH,
    fsGroup=_ID,
    fsGroupChangePolicy=_one_of("Always", "OnRootMismatch"),
    supplementalGroups={"type": "array", "maxItems": 64, "items": _ID},
    supplementalGroupsPolicy=_one_of("Merge", "Strict"),
    seccompProfile=_PROFILE,
    appArmorProfile=_PROFILE,
    seLinuxOptions=_mapping(
        level=_text(253, _PLAIN),
        role=_text(253, _PLAIN),
        type=_text(253, _PLAIN),
        user=_text(253, _PLAIN),
    ),
    sysctls={
        "type": "array",
        "maxItems": 64,
        "items": _mapping(
            ("name", "value"),
            name=_text(253, _SYSCTL),
            value=_text(253, _PLAIN),
        ),
    },
    windowsOptions=_FREE,
)
