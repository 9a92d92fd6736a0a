"""What one source of three brings wrong stops its own part of a table: the others go on, in the same commit too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.state.tables import State
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.oracle import lake_rows_pyiceberg
from tests.support.postgres import Database, create_database, drop_database
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

BAD = "us"
TABLES = ("large", "dates", "shares", "kinds")


@pytest.fixture
def sources(database: Database, postgres16: EmbeddedPostgres) -> Iterator[dict[str, Database]]:
    """Three; the second one is going to be bad."""
    others = [create_database(postgres16) for _ in range(2)]
    made = {"eu": database, BAD: others[0], "ap": others[1]}
    for source in made.values():
        source.execute("CREATE TABLE large (id int PRIMARY KEY, body text)")
        source.execute("CREATE TABLE dates (id int PRIMARY KEY, day date)")
        source.execute("CREATE TABLE shares (id int PRIMARY KEY, n int)")
        source.execute("CREATE TABLE kinds (id int PRIMARY KEY, kind text NOT NULL)")
    yield made
    for other in others:
        drop_database(other)


def fill(source: Database, key: int) -> None:
    """Insert a good row into each table, in one transaction."""
    with source.connect() as session, session.transaction():
        session.execute(f"INSERT INTO large VALUES ({key}, 'small')")
        session.execute(f"INSERT INTO dates VALUES ({key}, '2024-02-29')")
        session.execute(f"INSERT INTO shares VALUES ({key}, 5)")
        session.execute(f"INSERT INTO kinds VALUES ({key}, 'plain')")


#: By table type: what clashes with the columns of the others, and what undoes it.
CLASHES = {
    "clone": (
        "ALTER TABLE kinds DROP CONSTRAINT kinds_pkey, ADD PRIMARY KEY (id, kind)",
        "ALTER TABLE kinds DROP CONSTRAINT kinds_pkey, ADD PRIMARY KEY (id)",
    ),
    "append": ("ALTER TABLE kinds ADD extra int", "ALTER TABLE kinds DROP extra"),
    "history": ("ALTER TABLE kinds ADD extra int", "ALTER TABLE kinds DROP extra"),
}


def spoil(source: Database, table_type: str) -> None:
    """Do to each table what it cannot take."""
    source.execute("INSERT INTO large VALUES (66, repeat('x', 100000))")
    source.execute("INSERT INTO dates VALUES (66, 'infinity')")
    source.execute("INSERT INTO shares VALUES (66, 0)")
    source.execute(CLASHES[table_type][0])
    source.execute("INSERT INTO kinds VALUES (66, 'odd')")


def mend(source: Database, table_type: str) -> None:
    """Undo that."""
    for table in TABLES:
        source.execute(f"DELETE FROM {table} WHERE id = 66")
    source.execute(CLASHES[table_type][1])


def rows(pipeline: Pipeline, table: str) -> Counter[tuple[str, int]]:
    """The lake's rows: (sid, id) -> how often it is there."""
    lake = pipeline.folder
    found = lake_rows_pyiceberg(lake.pyiceberg, f"shop.{table}", ["sid", "id"], catalog=lake.catalog)
    return Counter(found.select(["sid", "id"]).rows)


# Slow: tests/contract/test_one_bad_source.py has all types with each run.
@pytest.mark.parametrize(
    "table_type",
    ["clone", pytest.param("append", marks=pytest.mark.slow), pytest.param("history", marks=pytest.mark.slow)],
)
def test_one_bad_source_of_three_stops_for_itself(
    sources: dict[str, Database], lake_folder: LakeFolder, table_type: str
) -> None:
    options: dict[str, dict] = {name: {"type": table_type} for name in TABLES}
    options["shares"]["set"] = {"id": "id", "share": "100 / n"}
    options["kinds"]["on_schema_change"] = "evolve" if table_type == "clone" else "stop"
    config = lake_folder.config(group(sources, options), max_row_bytes="64kB", commit_interval="1s")
    good = [sid for sid in sources if sid != BAD]
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()

        def are_there(*keys: int) -> None:
            expected = {(sid, key): 1 for sid in good for key in keys}
            for table in TABLES:
                wait_until(
                    lambda table=table: (
                        {at: n for at, n in rows(pipeline, table).items() if at[0] != BAD} == expected
                    ),
                    lambda table=table: f"{table} of the others: {rows(pipeline, table)} {pipeline.errors()}",
                )

        fill(sources["eu"], 1)
        spoil(sources[BAD], table_type)
        fill(sources["ap"], 1)
        for table in TABLES:
            pipeline.wait_state(f"shop_{BAD}", f"shop.{table}", State.ERROR)
        are_there(1)
        fill(sources["ap"], 2)
        fill(sources["eu"], 2)
        are_there(1, 2)
        in_error = {at for at, state in pipeline.states().items() if state is State.ERROR}
        assert in_error == {(f"shop_{BAD}", f"shop.{table}") for table in TABLES}
        text = " ".join(pipeline.errors())
        for part in ("`pipeline.max_row_bytes` is", "value 'infinity'", "DIVIDE_BY_ZERO"):
            assert part in text
        assert all(at[0] != BAD for table in TABLES for at in rows(pipeline, table)), "nothing of it is shown"

        mend(sources[BAD], table_type)
        fill(sources[BAD], 3)
        for table in TABLES:
            pipeline.tell("resync", f"shop.{table}", f"shop_{BAD}")
        pipeline.wait_streaming()
        for source in sources.values():
            fill(source, 4)
        expected = {(sid, key): 1 for sid in good for key in (1, 2, 4)} | {(BAD, key): 1 for key in (3, 4)}
        for table in TABLES:
            wait_until(
                lambda table=table: rows(pipeline, table) == expected, lambda table=table: rows(pipeline, table)
            )
