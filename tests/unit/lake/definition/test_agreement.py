"""Who else fills a field has a say in its name."""

from __future__ import annotations

from typing import Any

from kuvasz.config.names import member_name
from kuvasz.evolve import known
from kuvasz.lake.definition.agreement import Agreement
from tests.support.source_table import SourceTable


def columns(*fields: int) -> Any:
    """What is known of a source of which one column fills each of these fields."""
    table = SourceTable(*((f"c{field}", kind) for field, kind in zip(fields, KINDS, strict=False)))
    return known.of(table.catalog(), dict(zip(table.live, fields, strict=True)))


KINDS = [column.pg_type for column in SourceTable().live.values()]


def agreement(*feeding: str, **sources: Any) -> Agreement:
    found: Any = sources  # what it needs of `KnownSources`
    return Agreement(found, feeding or tuple(sources))


def test_a_field_that_nobody_else_fills_is_its_own() -> None:
    assert agreement(eu=columns(1, 2), us=columns(1, 3)).ask("eu", {2: "n"}) == []


def test_all_who_fill_it_have_to_ask_for_the_same() -> None:
    found = agreement(eu=columns(1, 2), us=columns(1, 2), ap=columns(2), ca=columns(1, 3))
    assert found.ask("eu", {2: "n"}) == ["ap", "us"]
    assert found.ask("us", {2: "another"}) == ["ap", "eu"]
    assert found.ask("us", {2: "n"}) == ["ap"]
    assert found.ask("ap", {2: "n"}) == []
    assert found.ask("eu", {2: "n"}) == []


def test_who_takes_it_back_is_against_it_again() -> None:
    found = agreement(eu=columns(2), us=columns(2), ap=columns(2))
    for source in ("eu", "us"):
        found.ask(source, {2: "n"})
    assert found.ask("eu", {}) == []
    assert found.ask("ap", {2: "n"}) == ["eu"]
    found.forget("us")
    assert found.ask("ap", {2: "n"}) == ["eu", "us"]


def test_who_has_no_rows_there_has_no_say() -> None:
    assert agreement("eu", eu=columns(2), us=columns(2)).ask("eu", {2: "n"}) == []


def test_tables_of_one_database_ask_as_one() -> None:
    one, other = member_name("eu", "1"), member_name("eu", "2")
    found = agreement(**{one: columns(2), other: columns(2), "us": columns(2)})
    assert found.ask(one, {2: "n"}) == ["us"]


def test_no_more_are_looked_for_than_are_told() -> None:
    found = agreement(**{f"s{number}": columns(2) for number in range(100)})
    assert len(found.ask("s7", {2: "n"})) == 4
