"""What is said of a table, without a server; tests/integration/test_discover.py asks real ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kuvasz.errors import ConfigError
from kuvasz.model import Column, ReplicaIdentity, TableName, TableType
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.typemap import BUILTIN
from kuvasz.verbs.maps import discover
from kuvasz.verbs.maps.discover import Decision, SourceListing
from tests.support.scene import CATALOG
from tests.support.source_table import numeric

HINT = (
    "hint: `kuvasz discover` lists the tables; names are as PostgreSQL has them, `*` stands for any text,"
    " public for no schema: 'shop.*', 'orders_*', '*.*'"
)


def column(name: str, oid: int, **facts: Any) -> Column:
    return Column(name=name, pg_type=BUILTIN[oid], **facts)


def table(*columns: Column, name: str = "items", schema: str = "public", **facts: Any) -> SourceTable:
    of = {} if not columns else {"columns": columns}
    relation = dataclasses.replace(CATALOG.relation, table=TableName(schema=schema, name=name), **of)
    identity = facts.pop("identity", relation.identity)
    return dataclasses.replace(CATALOG, relation=dataclasses.replace(relation, identity=identity), **facts)


def told(*columns: Column) -> list[str]:
    return [one.sentence() for one in discover.listed(table(column("id", 23, is_key=True), *columns)).decisions]


def test_a_table_in_order_is_a_clone_of_which_nothing_is_to_be_decided() -> None:
    listing = discover.listed(table(column("id", 23, is_key=True), column("name", 25), can_select=True))
    assert (listing.type, listing.why, listing.decisions) == (TableType.CLONE, "", ())
    assert (listing.key, listing.key_from, listing.kind, listing.rows) == (("id",), "primary key", "table", None)


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (column("v", 1700), "v: numeric becomes string: exact text; a number with `types: {column: decimal(p,s)}`"),
        (
            column("v", 1700, typmod=numeric(12, 2)),
            "v: numeric(12,2) becomes decimal(12, 2): NaN and Infinity stop the table; exact text with"
            " `types: {column: string}`",
        ),
        (
            column("v", 1082),
            "v: date: infinity and years beyond 9999: `out_of_range`, in a key `types: {column: string}`",
        ),
        (
            column("v", 1007),
            "v: int4[] becomes list<int>: of one dimension: others stop the table; `types: {column: string}`",
        ),
        (column("v", 1007, is_grid=True), "v: int4[] becomes string: PostgreSQL's own text"),
        (
            column("v", 1186),
            "v: interval becomes string: PostgreSQL's own text",
        ),
        (column("v", 1083), "v: time becomes string: PostgreSQL's own text: Spark cannot read Iceberg's time"),
    ],
)
def test_what_the_type_map_says_of_a_column_is_to_be_decided(one: Column, sentence: str) -> None:
    assert told(one)[0] == sentence


@pytest.mark.parametrize("oid", [16, 20, 21, 23, 25, 26, 114, 700, 701, 1042, 1043, 2950, 3802, 17])
def test_what_arrives_as_one_expects_is_not(oid: int) -> None:
    assert [one for one in told(column("v", oid)) if one.startswith("v")] == []


def test_columns_of_one_type_are_told_together() -> None:
    assert told(column("a", 1082), column("b", 1186), column("c", 1082))[0].startswith("a, c: date: ")


def test_a_table_without_a_key_takes_inserts_alone() -> None:
    listing = discover.listed(
        table(column("v", 25), why_no_key="it has no primary key; ALTER TABLE x;", can_update=False, can_select=True)
    )
    assert (listing.type, listing.key_from) == (TableType.APPEND, "")
    why = "it has no primary key: only its INSERTs are replicated"
    assert (listing.why, listing.decisions) == (why, (Decision(about="key", told=why, mend="ALTER TABLE x;"),))


def test_a_whole_row_is_a_key_but_one_to_think_of() -> None:
    bare = table(column("v", 25), why_no_key="it has none; X;", identity=ReplicaIdentity.FULL, can_select=True)
    listing = discover.listed(bare)
    assert (listing.type, listing.key_from) == (TableType.CLONE, "a row is matched as a whole")
    assert [one.sentence() for one in listing.decisions] == ["it has none; `key: [columns]` in the map or X;"]


def test_the_index_that_a_key_is_from_is_told() -> None:
    listing = discover.listed(table(identity=ReplicaIdentity.INDEX))
    assert discover.key(listing) == "id (replica identity index)"


@pytest.mark.parametrize(
    ("facts", "extension", "why"),
    [
        ({"why_unsupported": "it is a view", "kind": TableKind.OTHER}, "", "it is a view"),
        ({}, "postgis", "it is a part of the extension postgis"),
        ({"columns": ()}, "", "it has no columns"),
        ({"columns": (), "generated": ("a",)}, "", "all of its columns are generated"),
    ],
)
def test_what_cannot_be_replicated_is_left_out(facts: dict[str, Any], extension: str, why: str) -> None:
    relation = dataclasses.replace(CATALOG.relation, columns=facts.pop("columns", CATALOG.relation.columns))
    listing = discover.listed(dataclasses.replace(CATALOG, relation=relation, **facts), extension)
    assert (listing.type, listing.why) == (None, why)


def test_what_keeps_a_role_from_the_rows_is_told() -> None:
    unreadable = (TableName(schema="public", name="items"), TableName(schema="a.b", name="c"))
    listing = discover.listed(table(unreadable=unreadable, has_policies=True, generated=("sum",)))
    assert [(one.about, one.sentence()) for one in listing.decisions if one.about != "types"] == [
        ("generated_columns", "sum: generated, left out of copy and stream: compute with `set` if wanted"),
        ("select", 'the role may not read items, "a.b".c; `kuvasz check` has the GRANT'),
        ("row_security", "row security hides rows from the role; `kuvasz check` has the ALTER ROLE"),
    ]


def test_patterns_choose_and_except() -> None:
    tables = [table(name="a"), table(name="ab"), table(name="a", schema="x"), table(name="A")]

    def names(patterns: list[str], excepted: list[str] | None = None) -> list[str]:
        return [str(one.table) for one in discover.chosen(tables, patterns, excepted or [])]

    assert names([]) == ["public.a", "public.ab", "x.a", "public.A"]
    assert names(["a*"]) == ["public.a", "public.ab"]
    assert names(["*.a", "A"]) == ["public.a", "x.a", "public.A"]
    assert names([], ["x.*", "ab"]) == ["public.a", "public.A"]
    assert [str(one.table) for one in discover.chosen(tables, ["no", "ab"], is_strict=False)] == ["public.ab"]


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["a", "q*"], "no table is meant by 'q*'"),
        (['"a'], "'\"a' is not a name: a dot separates schema and table, double quotes protect a dot"),
    ],
)
def test_a_pattern_that_means_nothing_is_refused(patterns: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        discover.chosen([table(name="a")], patterns)
    assert str(error.value) == f"{message}\n{HINT}"


def test_a_url_of_the_command_line_is_filled_as_that_of_a_map(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("ge/heim\n")
    assert discover.filled("postgresql://k:${PW}@h/d", {"PW": "a@b"}) == "postgresql://k:a%40b@h/d"
    assert discover.filled("postgresql://k:${file:pw}@h/d", {}, tmp_path) == "postgresql://k:ge%2Fheim@h/d"
    with pytest.raises(ConfigError) as error:
        discover.filled("postgresql://k:${PW}@h/d", {})
    assert str(error.value) == (
        "--url: the environment variable PW is not set (a default is written ${PW:-…})\n"
        "hint: write it as a map has it, in single quotes: 'postgresql://kuvasz:${EU_PW}@eu1/shop'"
    )


def test_a_person_sees_a_row_each_and_below_it_what_is_to_be_decided() -> None:
    listings = (
        discover.listed(table(column("id", 23, is_key=True), column("d", 1082), can_select=True), is_mapped=True),
        discover.listed(
            table(column("d", 1082, is_key=True), name="x\x1b", schema="a.b", can_select=True, row_estimate=12345,
                  kind=TableKind.PARTITIONED), is_mapped=False,
        ),
        discover.listed(table(name="v", why_unsupported="it is a view"), is_mapped=False),
    )  # fmt: skip
    good = SourceListing(source="shop_eu", location="k@h:5432/shop", database="shop", tables=listings)
    bad = SourceListing(
        source="shop_us", location="k@u:5432/shop", database="shop", error="gone", hint="x", error_code=1
    )
    lines = discover.render([good, bad]).split("\n")
    assert [" ".join(line.split()) for line in lines] == [
        "source shop_eu (k@h:5432/shop)",
        "",
        "table type rows size key in the map",
        " ".join(lines[3].split()),
        "items clone ? 8.0 kB id yes",
        '"a.b".x\\x1b clone 12,345 8.0 kB d no 0 partitions',
        "",
        "to decide:",
        "date: infinity and years beyond 9999: `out_of_range`, in a key `types: {column: string}`",
        'items (d), "a.b".x\\x1b (d)',
        "",
        "left out:",
        "v: it is a view",
        "",
        "source shop_us (k@u:5432/shop)",
        "",
        "error: gone",
        "hint: x",
        "",
        "3 tables, 2 with something to decide, 1 to leave out",
    ]
    assert discover.exit_code([good]) == 0
    assert discover.exit_code([good, bad]) == 1


def test_a_program_gets_everything() -> None:
    listing = discover.listed(table(column("id", 23, is_key=True), can_select=True), is_mapped=False)
    (found,) = discover.as_json([SourceListing(source="", location="h", database="d", tables=(listing,))])
    assert found["tables"][0] == {
        "table": "items", "schema": "public", "name": "items", "kind": "table", "partitions": 0, "rows": None,
        "bytes": 8192, "key": ("id",), "key_from": "primary key", "type": "clone", "why": "", "decisions": (),
        "is_mapped": False,
    }  # fmt: skip
    assert (found["error"], found["hint"], found["error_code"]) == (None, None, 0)
