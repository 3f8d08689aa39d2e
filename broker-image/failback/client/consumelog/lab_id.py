"""LAB_ID: the identity of a logical message that survives every resend and every retry copy.

Text form ``LLLLLLLL-SSSSSSSSSSS``: the lane (16 bits producer number, 16 bits slot) in 8 hex
digits, the lane's own gap-free counter in 11. Tables carry the two numbers, so that a lane is a
run of integers; the text form exists only in the message.
"""

from typing import Final

LAB_ID_PROPERTY: Final = "LAB_ID"
LAB_ID_CHARS: Final = 20
MAX_LANE_SEQUENCE: Final = (1 << 44) - 1


def lane_of(producer: int, slot: int) -> int:
    """The lane of a producer's slot; both are 16 bit numbers."""
    if not (0 <= producer <= 0xFFFF and 0 <= slot <= 0xFFFF):
        raise ValueError(f"producer {producer} and slot {slot} must fit 16 bits")
    return producer << 16 | slot


def format_lab_id(lane: int, sequence: int) -> str:
    """The text form, always 20 characters."""
    if not (0 <= lane <= 0xFFFFFFFF and 0 <= sequence <= MAX_LANE_SEQUENCE):
        raise ValueError(f"lane {lane} or sequence {sequence} is out of range")
    return f"{lane:08x}-{sequence:011x}"


def parse_lab_id(text: str | None) -> tuple[int, int] | None:
    """Lane and sequence, or ``None`` for foreign traffic (absent or another shape)."""
    if text is None or len(text) != LAB_ID_CHARS or text[8] != "-":
        return None
    try:
        return int(text[:8], 16), int(text[9:], 16)
    except ValueError:
        return None
