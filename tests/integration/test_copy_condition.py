"""What PostgreSQL decides of a filter, Spark decides alike: a row that only Spark takes would be lost unseen."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from kuvasz.config.model import TableConfig
from kuvasz.config.sources import SourceTableSpec
from kuvasz.lake.executors.analyzer import spark_type
from kuvasz.lake.format.schema import source_type
from kuvasz.model import Relation, ReplicaIdentity, TableName
from kuvasz.modes.row_rules import readable
from kuvasz.source import conninfo
from kuvasz.source.catalog import introspect
from kuvasz.sync.rules.left_out import row_filters
from kuvasz.sync.rules.left_out.copy_condition import copy_condition
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import source_rows
from tests.support.postgres import Database, needs
from tests.support.proxy import proxy

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

NAME = TableName(schema="public", name="odd")
KINDS = {
    "s": "smallint", "n": "int", "l": "bigint", "b": "bool", "c": "text", "ci": "text COLLATE caseless",
    "v": "varchar(9)", "x": "char(9)", "u": "uuid", "e": "mood", "d": "small", "p": "numeric(9,2)", "day": "date",
}  # fmt: skip
TEXTS = ["", " ", "a", "A", "a ", "ab", "ß", "ss", "é", "e\u0301", "\U0001f600", "%", "a_", "ñ", "Z", "null", "1"]
NUMBERS = [0, 1, -1, 5, 32767, -32768]
VALUES = {
    "s": NUMBERS, "n": [*NUMBERS, 2**31 - 1, -(2**31)], "l": [*NUMBERS, 2**63 - 1, -(2**63)], "b": [True, False],
    "c": TEXTS, "ci": TEXTS, "v": TEXTS, "x": TEXTS, "e": ["", " a", "A", "a"], "d": NUMBERS,
    "p": [0, 1, "5.5", "NaN"],
    "u": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000"],
    "day": ["2024-01-01", "infinity"],
}  # fmt: skip
LITERALS = {
    "s": ["0", "-1", "5", "40000"], "n": ["0", "-1", "5", "2147483647", "3000000000"],
    "l": ["0", "1", "-32768", "9223372036854775807"], "b": ["true", "FALSE"],
    "u": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "'none'"],
    "p": ["1", "5.50"], "day": ["DATE '2024-01-01'"], "d": ["1", "5"],
}  # fmt: skip
TEXT_LITERALS = ["''", "' '", "'a'", "'A'", "'a '", "'ab'", "'ss'", "'e'", "'%'", "'null'", "'1'", "'Z'"]


@pytest.fixture
def odd(database: Database) -> Relation:
    """Return a table whose rows have all values, and NULL, beside each other."""
    draw = random.Random(1)  # noqa: S311 (no secret)
    with database.connect() as session:
        session.execute("CREATE TYPE mood AS ENUM ('', ' a', 'A', 'a')")
        session.execute("CREATE DOMAIN small AS int")
        session.execute(
            "CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
            if session.execute("SELECT FROM pg_collation WHERE collprovider = 'i'").fetchone()
            else 'CREATE COLLATION caseless FROM "C"'
        )
        columns = ", ".join(f"{name} {kind}" for name, kind in KINDS.items())
        session.execute(f"CREATE TABLE odd (id int PRIMARY KEY, {columns})")
        for number in range(300):
            row = [None if draw.random() < 0.2 else draw.choice(VALUES[name]) for name in KINDS]
            marks = ", ".join(f"%s::{kind.partition(' ')[0]}" for kind in KINDS.values())
            session.execute(f"INSERT INTO odd VALUES ({number}, {marks})", row)
    with conninfo.connect(database.url) as session:
        return introspect.load_relation(session, NAME).relation


def filters(draw: random.Random) -> Iterator[str]:
    while True:
        yield _condition(draw, 3)


def _condition(draw: random.Random, depth: int) -> str:
    if depth and draw.random() < 0.6:
        parts = [_condition(draw, depth - 1) for _ in range(draw.randint(2, 3))]
        joined = draw.choice([" AND ", " OR ", " and\n"]).join(parts)
        return draw.choice(["({})", "{}", "NOT ({})"]).format(joined)
    name = draw.choice(list(KINDS))
    literals = LITERALS.get(name, TEXT_LITERALS)
    column = draw.choice([name, name.upper(), f"`{name}`"])
    one, other = draw.choice(literals), draw.choice(literals)
    operator = draw.choice(["=", "==", "<>", "!=", "<", "<=", ">", ">="])
    texts = [
        f"{column} {operator} {one}", f"{one} {operator} {column}", f"{column} IN ({one}, {other})",
        f"{column} NOT IN ({one})", f"{column} BETWEEN {one} AND {other}", f"{column} IS NULL",
        f"{column} NOT BETWEEN {one} AND {other}", f"{column} IS NOT NULL", f"NOT {column} = {one}",
    ]  # fmt: skip
    if name == "b":
        texts += ["b", "NOT b", "b IS TRUE", "b IS NOT TRUE", "b IS FALSE", "b IS NOT FALSE"] * 2
    return draw.choice(texts)


def spark_rows(session: SparkSession, relation: Relation, database: Database, texts: list[str]) -> list[tuple]:
    """Return by row which filters Spark takes it for, with the values as expressions see them."""
    kinds = [spark_type(readable(source_type(column))) for column in relation.columns]
    names = [column.name for column in relation.columns]
    fields = [spark_types.StructField(name, kind) for name, kind in zip(names, kinds, strict=True)]
    read = ", ".join(
        f"{name}::text" if isinstance(kind, spark_types.StringType)
        else f"CASE WHEN {name}::text NOT IN ('NaN', 'infinity') THEN {name} END AS {name}"
        for name, kind in zip(names, kinds, strict=True)
    )  # fmt: skip
    rows = database.execute(f"SELECT {read} FROM odd ORDER BY id")
    frame = session.createDataFrame(rows, spark_types.StructType(fields)).coalesce(1)
    found = frame.selectExpr("id", *(f"coalesce(({text}), false) AS f{n}" for n, text in enumerate(texts)))
    return sorted(tuple(row) for row in found.collect())


def test_a_row_that_spark_takes_is_never_left_at_the_source(
    database: Database, odd: Relation, spark_session: SparkSession
) -> None:
    draw = random.Random()  # noqa: S311 (no secret)
    seed = draw.randint(0, 10**9)
    draw.seed(seed)
    made = filters(draw)
    known: dict[str, str] = {}
    while len(known) < 250:
        text = next(made)
        config = TableConfig(filter=text)
        spec = SourceTableSpec(table=NAME, config=config, namespace="shop", target="t", has_sid=False)
        if condition := copy_condition(spec, odd):
            known[text] = condition
    assert_superset(database, odd, spark_session, known, seed)


def test_a_row_filter_that_the_server_takes_lets_each_row_pass_that_spark_takes(
    database: Database, odd: Relation, spark_session: SparkSession
) -> None:
    needs(database.server, 15, "row filters")
    with conninfo.connect(database.url) as session:
        table = introspect.load_relation(session, NAME)
    full = dataclasses.replace(
        table, relation=dataclasses.replace(table.relation, identity=ReplicaIdentity.FULL), is_owned=True
    )
    draw = random.Random()  # noqa: S311 (no secret)
    seed = draw.randint(0, 10**9)
    draw.seed(seed)
    made = filters(draw)
    known: dict[str, str] = {}
    while len(known) < 150:
        text = next(made)
        config = TableConfig(filter=text, row_filter=True)
        spec = SourceTableSpec(table=NAME, config=config, namespace="shop", target="t", has_sid=False)
        condition = row_filters.wanted(spec, full)
        if condition and text not in known:
            known[text] = condition
            by = f"CREATE PUBLICATION p{len(known)} FOR TABLE ONLY public.odd WHERE ({condition})"
            assert database.takes(by), f"seed {seed}: {by}"
    assert any("::uuid" in condition for condition in known.values())
    assert_superset(database, odd, spark_session, known, seed)


def assert_superset(
    database: Database, odd: Relation, spark_session: SparkSession, known: Mapping[str, str], seed: int
) -> None:
    """PostgreSQL takes each row by a condition that Spark takes by the filter."""
    expected = spark_rows(spark_session, odd, database, list(known))
    conditions = ", ".join(f"coalesce(({condition}), false)" for condition in known.values())
    with conninfo.connect(database.url) as session:
        found = session.execute(f"SELECT id, {conditions} FROM public.odd ORDER BY id".encode()).fetchall()
    both = zip(known.items(), list(zip(*expected, strict=True))[1:], list(zip(*found, strict=True))[1:], strict=True)
    lost = {pair: taken for pair, taken, came in both if any(a and not b for a, b in zip(taken, came, strict=True))}
    assert lost == {}, f"seed {seed}"
    assert any(not came for row in found for came in row[1:])


def test_rows_outside_a_filter_stay_at_the_source(database: Database, lake_folder: LakeFolder) -> None:
    database.execute("CREATE TABLE people (id int PRIMARY KEY, region text, price numeric, note text)")
    database.execute(
        "INSERT INTO people SELECT i, CASE WHEN i % 2 = 0 THEN 'in' ELSE 'out' END, i,"
        " CASE WHEN i % 2 = 0 THEN 'Zq7Inside' ELSE 'Zq7Outside' END FROM generate_series(1, 100) i"
    )
    database.execute("CREATE VIEW seen AS SELECT * FROM people WHERE region <> 'out' AND price > 10")
    entry = {"filter": "region <> 'out' AND price > 10.0"}
    with proxy(database.server.port) as line:
        line.words = {b"Zq7Inside", b"Zq7Outside"}
        away = Database(database.server, database.name)
        away.url = database.url.replace(str(database.server.port), str(line.port))
        with Pipeline(lake_folder.config(group({"eu": away}, {"people": entry})), lake_folder) as pipeline:
            pipeline.wait_streaming()
            pipeline.assert_equal("people", source_rows(database.url, "seen", sid="eu"))
            assert line.heard == {b"Zq7Inside"}
