from __future__ import annotations

import dataclasses

import pytest

from kuvasz.config.model import TableConfig
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import OptionRefused, SchemaError
from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName, TableType
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.sync.rules import eligibility

INT = PgType(oid=23, name="int4")
NAME = TableName(schema="public", name="items")
FULL = SourceTable(
    relation=Relation(
        oid=7, table=NAME, identity=ReplicaIdentity.FULL,
        columns=(Column(name="id", pg_type=INT), Column(name="n", pg_type=INT)),
    ),
    kind=TableKind.TABLE, pages=1, page_bytes=8192, toast_bytes=0, row_estimate=None, primary_key=(),
    identity_index=(), generated=(), leaves=(), why_no_key="it has no primary key; mend it", mend="ALTER TABLE items",
)  # fmt: skip
BARE = dataclasses.replace(FULL, can_update=False)


SPEC = SourceTableSpec(table=NAME, config=TableConfig(), namespace="shop", target="items", has_sid=False)


def spec(*, member: str = "", **options: object) -> SourceTableSpec:
    config = TableConfig(**options)  # type: ignore[arg-type]
    return dataclasses.replace(SPEC, config=config, member=member)


@pytest.mark.parametrize(
    ("entry", "table", "message", "hint"),
    [
        (spec(), None, "source eu, table public.items: there is no such table",
         "create it, or take it out of the map"),
        (spec(member="8"), FULL, "source eu, table public.items: there is no such table",
         "create it, or take it out of the map"),
        (spec(), dataclasses.replace(FULL, why_unsupported="it is a view"),
         "source eu, table public.items cannot be replicated: it is a view", "take it out of the map"),
        (spec(), BARE, "source eu, table public.items: it has no primary key",
         "mend it or `type: append`, which takes its INSERTs alone, in the map"),
        (spec(type="history"), FULL, "source eu, table public.items: a history needs a key: it has no primary key",
         "mend it or `key: [columns]` in the map"),
        (spec(exclude=("m",)), FULL,
         "source eu, table public.items: exclude names 'm', which the table does not have",
         "mend the entry in the map"),
        (spec(types={"m": "string"}), FULL,
         "source eu, table public.items: types names 'm', which the table does not have",
         "mend the entry in the map"),
        (spec(types={"n": "decimal(5,1)"}), FULL,
         "source eu, table public.items: types has n be decimal(5,1), which is for numeric and arrays of it",
         "take it out of the map, or have it be a string"),
        (spec(initial="skip"), FULL,
         "source eu, table public.items: initial is skip, and it has no key: rows that the lake lacks could not be"
         " told from others", "give it a key, at the source or by `key`, or have it copied"),
        (spec(initial="from_lsn", from_lsn={"eu": "0/1"}), FULL,
         "source eu, table public.items: initial is from_lsn, and it has no key: rows that the lake lacks could not"
         " be told from others", "give it a key, at the source or by `key`, or have it copied"),
        # The key may come from the map alone, and is looked at with it.
        (spec(key=("id",), columns=("n",)), FULL,
         "source eu, table public.items: columns leaves out id, which identifies the rows",
         "mend the entry in the map"),
    ],
)  # fmt: skip
def test_why_a_table_is_refused(
    entry: SourceTableSpec, table: SourceTable | None, message: str, hint: str | None
) -> None:
    with pytest.raises(SchemaError) as caught:
        eligibility.checked("eu", entry, table)
    assert (caught.value.message, caught.value.hint) == (message, hint)
    unfit = eligibility.why_unfit(entry, table)
    assert unfit is not None
    assert (message.endswith(f": {unfit.why}"), unfit.hint) == (True, hint)


@pytest.mark.parametrize(
    "options",
    [
        {"mask": {"id": "redact"}, "key": ("id",)},
        {"mask": {"id": "redact"}, "key": ("n", "id")},
        {"mask": {"k": "redact"}, "set": {"k": "`id`", "n": "n"}},
        {"mask": {"k": "redact"}, "set": {"k": "id + n"}, "key": ("k",)},
        {"mask": {"id": "redact"}, "type": "append"},
        {"mask": {"id": "redact"}, "type": "changelog"},
    ],
)
def test_a_key_is_not_redacted(options: dict) -> None:
    keyed = tuple(dataclasses.replace(column, is_key=column.name == "id") for column in FULL.relation.columns)
    table = dataclasses.replace(FULL, relation=dataclasses.replace(FULL.relation, columns=keyed))
    with pytest.raises(OptionRefused) as caught:
        eligibility.checked("eu", spec(**options), table)
    (column,) = options["mask"]
    assert str(caught.value) == (
        f"source eu, table public.items: mask redacts {column}, which identifies the rows: all of them would be one"
        "\nhint: hmac keeps rows apart"
    )
    assert caught.value.option == f"mask.{column}"
    eligibility.checked("eu", spec(**options | {"mask": {column: "hmac"}}), table)


def test_rows_without_a_key_may_be_redacted() -> None:
    assert eligibility.checked("eu", spec(mask={"n": "redact"}), FULL) is FULL


def test_a_fit_table_comes_with_its_key() -> None:
    assert eligibility.checked("eu", spec(member="7"), FULL) is FULL
    assert eligibility.checked("eu", spec(key=("id",)), FULL).relation.key == ("id",)
    assert eligibility.checked("eu", spec(type=TableType.APPEND), BARE) is BARE
    keyed = tuple(dataclasses.replace(column, is_key=column.name == "n") for column in FULL.relation.columns)
    own = dataclasses.replace(FULL, relation=dataclasses.replace(FULL.relation, columns=keyed))
    assert eligibility.checked("eu", spec(key=("id",)), own) is own


@pytest.mark.parametrize("options", [{"key": ("id",)}, {"type": "append"}, {"type": "changelog"}])
def test_what_it_had_may_be_left_out_of_a_table_with_a_key_or_without_deletions(options: dict[str, object]) -> None:
    assert eligibility.why_unfit(spec(initial="skip", **options), FULL) is None
