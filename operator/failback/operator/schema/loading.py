"""Resource files: YAML with places, checked as a whole before anything is started.

Every refusal is one :class:`ConfigError` that names file, line, object and field. Objects that
have no process (a ChaosExperiment beside its cluster) are checked too, and handed back as
documents.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from failback.common.bounded_yaml import compose, read_text
from failback.common.text import did_you_mean, why
from failback.operator.engines.catalogue import unknown_key_hint
from failback.operator.kinds.pod_parts import SUBDOMAIN
from failback.operator.schema.decoding import (
    API_VERSION,
    KINDS,
    BrokerCluster,
    Invalid,
    NameServer,
    Resource,
    SubscriptionGroup,
    Topic,
    decode,
    path_parts,
    path_text,
)
from failback.protocol.errors import ConfigError, raise_all

OTHER_KINDS: Final = ("RoleSwitch", "OffsetSnapshot", "ChaosExperiment", "ReconsumptionReport")
ANNOTATIONS: Final = frozenset(
    {
        "failback.dev/accept-quirk",
        "failback.dev/force-resync-member",
        "failback.dev/open-member",
        "failback.dev/hold-member",
        "failback.dev/managed",
        "failback.dev/node-fenced",
        "failback.dev/pause-reconciliation",
        "failback.dev/restart",
        "failback.dev/restart-member",
        "failback.dev/skip-scaledown-check",
    }
)
_Kind = TypeVar("_Kind", bound=Resource)
_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document: its plain data, and the place of each part in the file."""

    data: dict[str, Any]
    file: Path
    places: Mapping[_Path, tuple[int, int]]
    """Line and column of every part, from 1."""

    @property
    def label(self) -> str:
        """``Kind/name`` as far as the document has them."""
        metadata = self.data.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        return f"{self.data.get('kind', 'document')}/{name if name is not None else '?'}"

    def error(self, path: Iterable[str | int] | str, problem: str) -> ConfigError:
        """Return the error that names this file, the line, the object and the field."""
        parts: _Path = path_parts(path) if isinstance(path, str) else tuple(path)
        text = path if isinstance(path, str) else path_text(parts)
        while parts and parts not in self.places:
            parts = parts[:-1]
        error = ConfigError(f"{self.label}: {text}", problem, file=self.file)
        error.line, error.column = self.places.get(parts, (1, 1))
        return error


@dataclass(frozen=True, slots=True)
class Resources:
    """Everything that a set of files asks for. Checked: references resolve, no two masters."""

    items: tuple[Resource, ...]
    others: tuple[Document, ...] = ()
    """Objects that are no part of a running cluster: switches, experiments, reports."""
    warnings: tuple[str, ...] = field(default=())
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Name of each Secret → its files: the local runtime gives them to guarded clusters."""

    def of(self, kind: type[_Kind]) -> tuple[_Kind, ...]:
        """Return the objects of one kind, in file order."""
        return tuple(item for item in self.items if isinstance(item, kind))


def load_resources(paths: Sequence[Path | str], *, namespace: str | None = None) -> Resources:
    """Read, decode and check resource files.

    Args:
        paths: YAML files, each with one or more documents.
        namespace: Put every object into this namespace, not into its own.

    Raises:
        ConfigError: All that is wrong with the objects; nothing of any file may be used then.
    """
    errors: list[ConfigError] = []
    ours: list[tuple[Document, Resource]] = []
    others: list[Document] = []
    secrets: dict[str, Mapping[str, str]] = {}
    for document in (document for path in paths for document in read_documents(Path(path))):
        if namespace is not None and isinstance(document.data.get("metadata"), dict):
            document.data["metadata"]["namespace"] = namespace
        try:
            if (document.data.get("apiVersion"), document.data.get("kind")) == ("v1", "Secret"):
                secrets |= _secret(document)
                continue
            _check_header(document)
            resource = _decode(document)
        except ConfigError as error:
            errors.append(error)
            continue
        if document.data["kind"] in OTHER_KINDS:
            others.append(document)
        else:
            ours.append((document, resource))
    raise_all(errors)
    if not ours and not others:
        where = ", ".join(map(str, paths)) or "no file"
        raise ConfigError("resources", "no object found", file=where)
    _check_together(ours)
    return Resources(
        items=tuple(resource for _, resource in ours),
        others=tuple(others),
        warnings=tuple(warning for _, resource in ours for warning in warnings_of(resource)),
        secrets=secrets,
    )


def _secret(document: Document) -> dict[str, Mapping[str, str]]:
    """Return the name and the files of a Secret. What they hold is never part of an error."""
    name = (document.data.get("metadata") or {}).get("name")
    if not isinstance(name, str) or not re.fullmatch(SUBDOMAIN, name):
        raise document.error("metadata.name", "must be the name of an object of Kubernetes")
    found: dict[str, str] = {}
    for field_name in ("data", "stringData"):
        files = document.data.get(field_name) or {}
        if not isinstance(files, dict) or not all(isinstance(each, str) for each in files.values()):
            raise document.error(field_name, "must be a mapping of names to texts")
        for file, text in files.items():
            try:
                plain = field_name == "stringData"
                found[file] = text if plain else base64.b64decode(text, validate=True).decode()
            except ValueError:
                problem = "must be text in base64; plain text is for stringData"
                raise document.error(("data", file), problem) from None
    return {name: found}


def read_documents(path: Path) -> list[Document]:
    """Return the documents of one YAML file, ``kind: List`` unfolded.

    Raises:
        ConfigError: The file cannot be read, is no YAML, is larger or deeper than resources can
            be, or a document is no mapping.
    """
    try:
        text = read_text(path)
        compose(text)
        loaded = list(YAML(typ="rt", pure=True).load_all(text))
    except (OSError, ValueError) as error:
        raise ConfigError(str(path), why(error)) from error
    except MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ConfigError(place, error.problem or "is not YAML") from error
    except YAMLError as error:
        raise ConfigError(str(path), f"is not YAML: {why(error)}") from error
    documents: list[Document] = []
    for content in loaded:
        if content is None:
            continue
        places: dict[_Path, tuple[int, int]] = {}
        data = _plain(content, (), places)
        if not isinstance(data, dict):
            place = f"{path}:{places.get((), (1, 1))[0]}"
            raise ConfigError(place, "must be a mapping with apiVersion, kind and metadata")
        documents += _unfold(Document(data, path, places))
    return documents


def warnings_of(resource: Resource) -> Iterator[str]:
    """Yield what is legal but unwise about one object."""
    for key in resource.metadata.annotations:
        if key.startswith("failback.dev/") and key not in ANNOTATIONS:
            near = did_you_mean(key, ANNOTATIONS)
            yield f"{resource.label}: metadata.annotations: unknown annotation {key}{near}"
    if not isinstance(resource, BrokerCluster):
        return
    spec = resource.spec
    configs = [("spec.config", spec.config)]
    for position, override in enumerate(spec.pair_overrides):
        path = f"spec.pairOverrides[{position}]"
        configs.append((f"{path}.config", override.config))
        if override.index >= spec.pairs:
            yield (
                f"{resource.label}: {path}: there is no pair {override.index};"
                f" the cluster has {spec.pairs}"
            )
    for path, config in configs:
        for unknown in config:
            if hint := unknown_key_hint(unknown, spec.engine.program, spec.engine.version):
                yield f"{resource.label}: {path}: {hint}"
    if spec.slave_read_enable and spec.slaves_per_pair == 0:
        yield f"{resource.label}: spec.slaveReadEnable: there is no slave to read from"


def _plain(node: Any, path: _Path, places: dict[_Path, tuple[int, int]]) -> Any:
    """Return ``node`` as plain data; note line and column (from 1) of every part in ``places``."""
    if isinstance(node, CommentedMap):
        own = (node.lc.line + 1, node.lc.col + 1)
        places.setdefault(path, own)
        for key in node:
            try:
                line, column = node.lc.key(key)
                places[(*path, str(key))] = (line + 1, column + 1)
            except KeyError:  # came in through a merge key: the mapping's own place serves
                places[(*path, str(key))] = own
        return {str(key): _plain(value, (*path, str(key)), places) for key, value in node.items()}
    if isinstance(node, CommentedSeq):
        places.setdefault(path, (node.lc.line + 1, node.lc.col + 1))
        return [_plain(value, (*path, index), places) for index, value in enumerate(node)]
    if isinstance(node, bool) or node is None:
        return node
    for kind in (str, int, float):
        if isinstance(node, kind):
            return kind(node)  # ruamel's own scalar types remember their notation
    return str(node)


def _unfold(document: Document) -> Iterator[Document]:
    if document.data.get("kind") != "List" or document.data.get("apiVersion") != "v1":
        yield document
        return
    items = document.data.get("items") or ()
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise document.error(("items",), "must be a list")
    for index, item in enumerate(items):
        prefix = ("items", index)
        places = {path[2:]: at for path, at in document.places.items() if path[:2] == prefix}
        if not isinstance(item, dict):
            raise document.error(prefix, "must be a mapping")
        yield Document(item, document.file, places)


def _check_header(document: Document) -> None:
    version, kind = document.data.get("apiVersion"), document.data.get("kind")
    if version != API_VERSION:
        problem = f"must be {API_VERSION}"
        problem += "" if version is None else f', got "{version}"'
        raise document.error(("apiVersion",), problem)
    if not isinstance(kind, str):
        raise document.error(("kind",), f"must be one of {', '.join(KINDS)}")
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS)
        raise document.error(("kind",), f'unknown kind "{kind}"{hint}')


def _decode(document: Document) -> Resource:
    try:
        return decode(document.data)
    except Invalid as invalid:
        found = [document.error(path, problem) for path, problem in invalid.problems]
        raise_all(sorted(found, key=lambda each: (each.line or 0, each.column or 0)))
        raise


def _check_together(ours: Sequence[tuple[Document, Resource]]) -> None:
    """Check what one object alone can't show: names, references, one master per pair."""
    seen: dict[tuple[str, str, str], Document] = {}
    for document, resource in ours:
        key = (resource.kind, resource.namespace, resource.name)
        if key in seen:
            where = f"{seen[key].file}:{seen[key].places.get((), (1, 1))[0]}"
            raise document.error(("metadata", "name"), f"is already defined in {where}")
        seen[key] = document
    _check_name_servers(ours)
    _check_masters(ours)
    _check_cluster_references(ours)


def _named(
    ours: Sequence[tuple[Document, Resource]], kind: type[_Kind], space: str
) -> dict[str, _Kind]:
    return {
        resource.name: resource
        for _, resource in ours
        if isinstance(resource, kind) and resource.namespace == space
    }


def _check_name_servers(ours: Sequence[tuple[Document, Resource]]) -> None:
    for document, cluster in ours:
        if not isinstance(cluster, BrokerCluster) or cluster.spec.name_server_ref is None:
            continue
        known = _named(ours, NameServer, cluster.namespace)
        wanted = cluster.spec.name_server_ref.name
        if wanted not in known:
            problem = (
                f'there is no NameServer "{wanted}" in these files{did_you_mean(wanted, known)}'
            )
            raise document.error("spec.nameServerRef.name", problem)


def _check_masters(ours: Sequence[tuple[Document, Resource]]) -> None:
    """Refuse two clusters that would register two masters of one broker name."""
    masters: dict[tuple[str, str], BrokerCluster] = {}
    for document, cluster in ours:
        if not isinstance(cluster, BrokerCluster):
            continue
        for pair in range(cluster.spec.pairs):
            name = cluster.broker_name(pair)
            # Name servers know a pair by its broker name alone, and not by its cluster.
            places = [("cluster", cluster.cluster_name)]
            if cluster.spec.name_server_ref is not None:
                places.append((cluster.namespace, cluster.spec.name_server_ref.name))
            places += [("", address) for address in cluster.spec.name_server_addresses or ()]
            for place in places:
                other = masters.setdefault((f"{place[0]}/{place[1]}", name), cluster)
                if other is not cluster:
                    field_name = "brokerNamePrefix" if cluster.spec.broker_name_prefix else "pairs"
                    problem = f"two masters: broker name {name} belongs to {other.label} already"
                    raise document.error(f"spec.{field_name}", problem)


def _check_cluster_references(ours: Sequence[tuple[Document, Resource]]) -> None:
    owners: dict[tuple[str, str, str, str], Resource] = {}
    for document, resource in ours:
        if not isinstance(resource, (Topic, SubscriptionGroup)):
            continue
        clusters = _named(ours, BrokerCluster, resource.namespace)
        wanted = resource.spec.cluster_ref.name
        if wanted not in clusters:
            hint = did_you_mean(wanted, clusters)
            problem = f'there is no BrokerCluster "{wanted}" in these files{hint}'
            raise document.error("spec.clusterRef.name", problem)
        name = resource.topic_name if isinstance(resource, Topic) else resource.group_name
        owner = owners.setdefault((resource.kind, resource.namespace, wanted, name), resource)
        if owner is not resource:
            field_name = "topicName" if isinstance(resource, Topic) else "groupName"
            raise document.error(f"spec.{field_name}", f"{name} belongs to {owner.label} already")
        if isinstance(resource, Topic):
            _check_topic_pairs(document, resource, clusters[wanted])


def _check_topic_pairs(document: Document, topic: Topic, cluster: BrokerCluster) -> None:
    known = [cluster.broker_name(pair) for pair in range(cluster.spec.pairs)]
    for position, name in enumerate(topic.spec.pairs):
        if name != "*" and name not in known:
            problem = f'{cluster.label} has no pair "{name}"{did_you_mean(name, known)}'
            raise document.error(f"spec.pairs[{position}]", problem)
