"""Words of resources: every enumeration of every kind is read in one spelling."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.schema.decoding import KINDS
from tests.support.operator.enumerations import ALL, document

pytestmark = pytest.mark.foreign

ROCKETMQ = frozenset(
    {"ASYNC_MASTER", "SYNC_MASTER", "ASYNC_FLUSH", "SYNC_FLUSH", "CLUSTERING", "BROADCASTING"}
    | {"compat", "guarded", "KILL", "TERM"}
)
"""What RocketMQ, broker.conf and the kernel call by these names."""


def held(kind: str, made: dict[str, Any], path: str) -> Any:
    """Return what the model of an object holds at a path."""
    node: Any = KINDS[kind].model_validate(made).model_dump(mode="json", by_alias=True)
    for part in path.split("."):
        node = node[part.removesuffix("[]")]
        node = node[0] if part.endswith("[]") else node
    return node


def test_every_enumeration_has_words_of_one_form() -> None:
    words = {word for _, _, enumeration in ALL for word in enumeration}
    others = {word for word in words - ROCKETMQ if word[:1].isalpha() and not word[0].isupper()}
    assert others == set()


def test_each_word_is_read() -> None:
    for kind, path, words in ALL:
        for word in words:
            assert held(kind, document(kind, path, word), path) == word, (kind, path)


def test_another_letter_case_is_refused_with_the_words_that_are_taken() -> None:
    for kind, path, words in ALL:
        first = words[0]
        if not first[:1].isalpha():
            continue
        for other in {first.swapcase(), first.lower()} - set(words):
            with pytest.raises(ValueError, match=first):
                KINDS[kind].model_validate(document(kind, path, other))


@pytest.mark.parametrize("pair", [1, "1", "pair"])
def test_a_pair_is_named_by_its_broker_name(pair: object) -> None:
    with pytest.raises(ValueError, match="must be the broker name of a pair, such as orders-1"):
        KINDS["RoleSwitch"].model_validate(document("RoleSwitch", "spec.pair", pair))
