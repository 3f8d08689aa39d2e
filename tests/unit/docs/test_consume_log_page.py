"""docs/reference/lake.md has every column of the consume log, as the schema explains it."""

from __future__ import annotations

from tools.consume_log_page import BEGIN, PAGE, with_tables

from failback.client.consumelog import meanings
from failback.client.consumelog.schema import COMMON, TABLES

EVERY = [(name, column.name) for name, table in TABLES.items() for column in table.columns]


def test_the_page_is_what_the_schema_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count(BEGIN) == 1
    assert page == with_tables(page)


def test_no_sentence_is_left_of_a_column_that_is_gone() -> None:
    known = {column.name for column in COMMON} | {column for _, column in EVERY}
    special = {f"{table}.{column}" for table, column in EVERY}
    assert set(meanings.COLUMNS) <= known | special
    assert set(meanings.TABLES) == set(TABLES)
