"""What stands for null in a column of whole numbers. Pure."""

from __future__ import annotations

from typing import Final

NULL_NUMBER: Final = -(1 << 62)
