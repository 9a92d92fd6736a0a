"""What is noted of the constant defaults of columns: nothing by which a value can be guessed that is not shown."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import pytest

from kuvasz.evolve import column_notes, known
from kuvasz.evolve.changes import ChangeKind, compare
from kuvasz.lake.definition import hidden_defaults
from kuvasz.model import Relation
from kuvasz.ports import Target
from tests.support.source_table import TEXT, SourceTable

SECRET = b"a secret of sixteen characters"
VALUE = "DE"
HMAC = {"mask": {"land": "hmac"}, "mask_secret": SECRET}
REDACT: dict[str, Any] = {"mask": {"land": "redact"}}

#: Ways in which the map keeps a column's values out of the lake.
HIDING: list[dict[str, Any]] = [
    HMAC,
    {"mask": {"land": "hmac:person"}, "mask_secret": SECRET},
    REDACT,
    {"exclude": frozenset({"land"})},
    {"columns": frozenset({"id", "n"})},
    {"exclude": frozenset({"land"}), "filter": "land = 'DE'"},
    {"set": {"id": "id", "n": "n"}},
    {"set": {"id": "id", "card": "concat(land, n)"}, "mask": {"card": "redact"}},
]


def target(**options: Any) -> Target:
    return Target(name="shop.items", **options)


def made(value: str | None = VALUE) -> SourceTable:
    table = SourceTable()
    table.add("land", TEXT, default=value)
    return table


def noted(options: dict[str, Any], table: SourceTable) -> tuple[Relation, known.SourceColumns]:
    """What the lake remembers of a table: read back from the properties."""
    relation = hidden_defaults.over(target(**options), table.catalog())
    properties = column_notes.render("eu", known.of(relation, {}))
    return relation, column_notes.parse(properties, "shop.items")["eu"]


@pytest.mark.parametrize("options", HIDING)
def test_no_digest_of_a_value_alone_is_noted(options: dict[str, Any]) -> None:
    plain = hashlib.sha256(VALUE.encode()).hexdigest()[:8]
    assert plain in str(column_notes.render("eu", known.of(made().catalog(), {})))
    relation = hidden_defaults.over(target(**options), made().catalog())
    written = str(column_notes.render("eu", known.of(relation, {})))
    assert plain not in written
    assert VALUE not in written
    assert relation.columns[0] == made().catalog().columns[0]


@pytest.mark.parametrize("options", [
    {}, {"mask": {"name": "redact"}}, {"filter": "n > 0"}, {"set": {"id": "id", "at": "lower(LAND)"}},
    {"set": {"id": "id", "all": "to_json(struct(*))"}},
])  # fmt: skip
def test_what_the_lake_shows_is_noted_as_ever(options: dict[str, Any]) -> None:
    assert hidden_defaults.over(target(**options), made().catalog()) == made().catalog()


@pytest.mark.parametrize("options", HIDING)
def test_a_column_that_shows_nothing_is_noted_as_one(options: dict[str, Any]) -> None:
    before, after = noted(options, made(None)), noted(options, made())
    assert [change.kind for change in compare(before[1], after[0])] == [ChangeKind.REWRITE]
    assert [change.kind for change in compare(after[1], before[0])] == [ChangeKind.REWRITE]
    assert compare(after[1], after[0]) == []


def test_another_value_of_a_pseudonymous_column_is_seen() -> None:
    _, before = noted(HMAC, made())
    for options, value, is_seen in (
        (HMAC, VALUE, False), (HMAC, "FR", True), ({**HMAC, "mask_secret": SECRET + b"!"}, "FR", False),
        (REDACT, "FR", False),
    ):  # fmt: skip
        now, _ = noted(options, made(value))
        assert bool(compare(before, now)) == is_seen, (options, value)


@pytest.mark.parametrize("options", HIDING)
def test_what_an_earlier_version_noted_is_no_other_value(options: dict[str, Any]) -> None:
    """And is written anew: the note differs."""
    earlier = known.of(made().catalog(), {})
    now, _ = noted(options, made("FR"))
    assert compare(earlier, now) == []
    assert known.of(now, {}, earlier) != earlier
    unsaid = {n: dataclasses.replace(one, missing=None) for n, one in earlier.columns.items()}
    assert compare(dataclasses.replace(earlier, columns=unsaid), now) == []


def test_one_value_has_other_digests_by_secret_and_column() -> None:
    table = made()
    table.add("state", TEXT, default=VALUE)
    options = {"mask": {"land": "hmac", "state": "hmac"}}
    digests = {
        column.missing
        for secret in (SECRET, SECRET + b"!")
        for column in hidden_defaults.over(target(mask_secret=secret, **options), table.catalog()).columns
        if column.missing
    }
    assert len(digests) == 4
