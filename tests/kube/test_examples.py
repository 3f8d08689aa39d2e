"""Every YAML that a reader copies, given to a real API server the way pages say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.docs.yaml_examples import (
    EXAMPLE_FILES,
    KUSTOMIZATIONS,
    ROOT,
    blocks_of_pages,
    documents_of,
)
from tests.support.kube_lab.namespaces import Namespace

DEMO = ROOT / "examples/demo"


def labels_of(text: str) -> list[str]:
    """``kind.group/name`` of each document, as kubectl writes it: ``pod/name`` without a group."""
    return sorted(
        f"{each['kind'].lower()}{group_of(each)}/{each['metadata']['name']}"
        for each in documents_of(text)
    )


def group_of(document: dict[str, Any]) -> str:
    group = document["apiVersion"].rpartition("/")[0]
    return f".{group}" if group else ""


def applied(out: str) -> list[str]:
    return sorted(line.split()[0] for line in out.splitlines())


@pytest.mark.parametrize("folder", sorted({file.parent for file in EXAMPLE_FILES}), ids=str)
def test_the_server_accepts_every_example(namespace: Namespace, folder: Path) -> None:
    for file in (each for each in EXAMPLE_FILES if each.parent == folder):
        done = namespace.kubectl("apply", "--dry-run=server", "-f", str(file))
        assert applied(done.out) == labels_of(file.read_text()), file.name


def test_the_server_accepts_what_kustomize_makes(namespace: Namespace) -> None:
    pairs = {}
    for file in KUSTOMIZATIONS:
        overlay = ("apply", "--dry-run=server", "-k", str(file.parent), "-o", "json")
        made = json.loads(namespace.kubectl(*overlay).out)["items"]
        (cluster,) = (each for each in made if each["kind"] == "BrokerCluster")
        pairs[file.parent.name] = cluster["spec"]["pairs"], cluster["metadata"].get("labels")
    assert pairs == {
        "base": (1, None),
        "staging": (1, {"environment": "staging"}),
        "production": (2, {"environment": "production"}),
    }


def test_the_server_accepts_every_resource_on_a_page(namespace: Namespace) -> None:
    for place, text in blocks_of_pages().items():
        if "cert-manager.io/" in text:  # whose definitions are not installed here
            continue
        file = namespace.folder / "page.yaml"
        file.write_text(text)
        done = namespace.kubectl("apply", "--dry-run=server", "-f", str(file))
        assert applied(done.out) == labels_of(text), place


def test_the_demo_is_whole_as_a_folder_and_joined(namespace: Namespace) -> None:
    text = "".join(file.read_text() for file in sorted(DEMO.glob("*.yaml")))
    joined = namespace.folder / "joined.yaml"
    joined.write_text(text)
    assert applied(namespace.kubectl("apply", "-f", str(DEMO)).out) == labels_of(text)
    assert applied(namespace.kubectl("apply", "-f", str(joined)).out) == labels_of(text)
    assert len(labels_of(text)) == 4
