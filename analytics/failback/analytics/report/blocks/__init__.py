"""The blocks of ``report.json`` as structs: fields, types, and what each means.

``tools/report_schemas.py`` makes ``report.schema.json`` of them, and from that the reference of the
documents is made. Reports themselves are plain dictionaries, checked against the schema.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

LARGE: Final = "^-?[0-9]{16,19}$"
"""Texts of integers that are no JSON numbers which every reader keeps; only offsets get there."""

Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]
LargeText = Annotated[str, Meta(pattern=LARGE)]
Large = int | LargeText
LargeCount = Count | LargeText


class Block(Struct, kw_only=True):
    """Some fields of a report; further ones may come with a later version."""


def text(meaning: str) -> Meta:
    """What a field means, for the schema and the documents."""
    return Meta(description=meaning)


class OfQueue(Block, kw_only=True):
    """What is of one queue, as a group sees it."""

    group: Annotated[str, text("The consumer group; of a broadcasting one a member of it.")]
    broker: Annotated[str, text("Broker name of the pair.")]
    topic: Annotated[str, text("The topic; several are joined by commas.")]
    qid: Annotated[int, text("Number of the queue.")]


FIGURES: Final = {
    "dup": text(
        "Duplicates: deliveries of a message that the group had been given before, without wanted "
        "retries."
    ),
    "dup_after_success": text("Duplicates after the group had handled the message to its end."),
    "wasted_seconds": text("Handler time of deliveries after a success."),
    "lost": text(
        "Acknowledged messages that the group never handled; null without drain and scan."
    ),
}
"""What figures mean that several blocks have, by name."""
