"""YAML that a reader copies: it can be joined, goes into any namespace, and is accepted."""

from __future__ import annotations

import pytest
from ruamel.yaml import YAML

from failback.operator.schema.decoding import decode
from tests.support.docs.yaml_examples import (
    EXAMPLE_FILES,
    KUSTOMIZATIONS,
    blocks_of_pages,
    documents_of,
)

JOINED = "".join(file.read_text() for file in EXAMPLE_FILES)


def test_a_file_begins_a_document_and_leaves_the_namespace_to_the_command() -> None:
    for file in EXAMPLE_FILES:
        assert file.read_text().startswith("---\n"), file
        metadata = [each["metadata"] for each in documents_of(file.read_text())]
        assert metadata, file
        assert [each["name"] for each in metadata if "namespace" in each] == [], file


def test_a_kustomization_begins_a_document_too() -> None:
    for file in KUSTOMIZATIONS:
        assert file.read_text().startswith("---\n"), file
        assert "namespace" not in documents_of(file.read_text())[0], file


def test_joining_the_files_loses_no_document() -> None:
    alone = [each for file in EXAMPLE_FILES for each in documents_of(file.read_text())]
    assert documents_of(JOINED) == alone


def test_no_key_stands_twice_when_files_are_joined() -> None:
    """kubectl takes the last of two keys without a word; this reader refuses them."""
    assert len(list(YAML(pure=True).load_all(JOINED))) == len(documents_of(JOINED))


@pytest.mark.parametrize("place", sorted(blocks_of_pages()))
def test_a_resource_on_a_page_is_accepted(place: str) -> None:
    found = documents_of(blocks_of_pages()[place])
    assert found
    for document in found:
        if document["apiVersion"].startswith("failback.dev/"):
            assert decode(document).name == document["metadata"]["name"]
