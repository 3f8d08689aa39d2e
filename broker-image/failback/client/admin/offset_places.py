"""Names of the places in which a consumer offset stands, as ``explain-offset`` shows them."""

from __future__ import annotations

from typing import Final

CLIENT: Final = "client memory"
MASTER_TABLE: Final = "master table"
MASTER_FILE: Final = "master file"
SLAVE_TABLE: Final = "slave table"
ANSWER: Final = "answer"
