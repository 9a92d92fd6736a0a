"""What is parked of masked columns is masked, and the lake has the same rows as if it had not been parked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kuvasz.state.tables import State
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database
from tests.support.two_tables import EU, ITEMS, lake_counts, wait_let_go
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

TABLES = ("items", "others")
ENTRY = {"mask": {"id": "hmac", "mail": "hmac", "card": "redact", "big": "hmac"}, "exclude": ["secret"]}
SECRET = {"mask_secret": "a secret of sixteen characters"}

ITEMS_PLACE = "source shop_eu, table public.items"

#: Begins every value that no log may have.
CLEAR = b"Zq7"


def fill(database: Database, *, is_full: bool = False) -> None:
    for table in TABLES:
        database.execute(
            f"CREATE TABLE {table} (id text PRIMARY KEY, mail text, card text, secret text, big text, n int);"
            f"ALTER TABLE {table} ALTER COLUMN big SET STORAGE EXTERNAL"
        )
        if is_full:
            database.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    write(database, "INSERT INTO {} SELECT 'Zq7' || i, 'Zq7m' || i, 'Zq7c', 'Zq7s', repeat('Zq7', 3000) || i, 0"
                    " FROM generate_series(1, 30) i")  # fmt: skip


def write(database: Database, *statements: str) -> None:
    """Change both tables alike, each statement in a transaction of its own."""
    for statement in statements:
        with database.connect() as session:
            for table in TABLES:
                session.execute(statement.format(table))  # type: ignore[arg-type]


def change(database: Database, number: int) -> None:
    write(
        database,
        f"UPDATE {{}} SET n = {number} WHERE id LIKE '%1'",  # the large value is not sent
        f"UPDATE {{}} SET mail = mail || 'Zq7{number}', secret = 'Zq7' WHERE id LIKE '%2'",
        f"UPDATE {{}} SET id = id || '_{number}' WHERE id = 'Zq74'",
        f"DELETE FROM {{}} WHERE id = 'Zq7{number + 20}'",
        f"INSERT INTO {{}} SELECT 'Zq7n{number}' || i, NULL, '', 'Zq7', 'Zq7', i FROM generate_series(1, 9) i",
    )


def parked(lake_folder: LakeFolder) -> Sequence[Path]:
    return list((lake_folder.folder / "state" / "parked").rglob("*.log"))


def assert_hidden(lake_folder: LakeFolder) -> None:
    (log,) = parked(lake_folder)
    assert b"mail" in log.read_bytes()
    assert CLEAR not in log.read_bytes()


def assert_alike(pipeline: Pipeline, database: Database) -> None:
    pipeline.wait_applied(database)
    items, others = (sorted(pipeline.rows(table), key=repr) for table in TABLES)
    assert items == others
    assert not any(CLEAR.decode() in repr(row) for row in items)


def resume(pipeline: Pipeline, lake_folder: LakeFolder) -> None:
    pipeline.tell("resume", ITEMS, EU)
    pipeline.wait_streaming()
    wait_until(lambda: not parked(lake_folder), "what was parked is applied and removed")


@pytest.mark.parametrize(
    ("kind", "is_full"),
    [
        ("clone", True),
        ("history", False),
        # Slow: each identity and each way to write is met once with each run.
        pytest.param("append", False, marks=pytest.mark.slow),
        pytest.param("clone", False, marks=pytest.mark.slow),
        pytest.param("changelog", True, marks=pytest.mark.slow),
    ],
)
def test_the_rows_are_those_of_a_table_that_was_never_parked(
    database: Database, lake_folder: LakeFolder, kind: str, is_full: bool
) -> None:
    fill(database, is_full=is_full)
    entry = {**ENTRY, "type": kind}
    config = lake_folder.config(group({"eu": database}, dict.fromkeys(TABLES, entry)), **SECRET)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        change(database, 1)
        pipeline.wait_applied(database)
        pipeline.tell("pause", ITEMS, EU)
        wait_let_go(database)
        change(database, 2)
        write(database, "ALTER TABLE {} ADD COLUMN later text", "ALTER TABLE {} RENAME COLUMN n TO m",
              "UPDATE {} SET later = 'x', m = 7 WHERE id LIKE '%3'",
              "ALTER TABLE {} RENAME COLUMN m TO n")  # fmt: skip
        wait_let_go(database)
        assert_hidden(lake_folder)
        pipeline.die()
        pipeline.error = None  # that of a failpoint
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_state(EU, ITEMS, State.PAUSED)
        change(database, 3)
        wait_let_go(database)
        assert_hidden(lake_folder)
        resume(pipeline, lake_folder)
        change(database, 4)
        assert_alike(pipeline, database)


def test_a_clone_has_what_another_map_says(database: Database, lake_folder: LakeFolder) -> None:
    """It is copied again, and nobody asks what was parked."""
    fill(database)
    config = lake_folder.config(group({"eu": database}, dict.fromkeys(TABLES, ENTRY)), **SECRET)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", ITEMS, EU)
        change(database, 1)
        wait_let_go(database)
    now = {"mask": {"id": "hmac", "mail": "redact", "big": "redact"}}
    config = lake_folder.config(group({"eu": database}, dict.fromkeys(TABLES, now)), **SECRET)
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.tell("resume", ITEMS, EU)
        change(database, 2)
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert sorted(pipeline.rows("items")) == sorted(pipeline.rows("others"))
        assert lake_counts(pipeline, "items", "secret LIKE 'Zq7%' AND mail = '***'") > 0


def test_what_was_parked_by_another_map_is_refused_until_that_is_back(
    database: Database, lake_folder: LakeFolder
) -> None:
    fill(database, is_full=True)  # else a large masked value that is not sent stops what keeps rows of another rule

    def config_of(card: str) -> object:
        entry = {**ENTRY, "mask": {**ENTRY["mask"], "card": card}, "type": "append"}  # type: ignore[dict-item]
        return lake_folder.config(group({"eu": database}, dict.fromkeys(TABLES, entry)), **SECRET)

    def wait_stopped(pipeline: Pipeline, why: str) -> None:
        wait_until(lambda: any(ITEMS_PLACE in one and why in one for one in pipeline.errors()),
                   lambda: f"it stops: {pipeline.errors()}")  # fmt: skip

    with Pipeline(config_of("redact"), lake_folder) as pipeline:
        pipeline.wait_streaming()
        pipeline.tell("pause", ITEMS, EU)
        wait_let_go(database)
        change(database, 1)
        wait_let_go(database)
    with Pipeline(config_of("hmac"), lake_folder) as pipeline:
        pipeline.tell("resume", ITEMS, EU)
        wait_stopped(pipeline, "`mask` of the map is another one")
        pipeline.tell("retry", ITEMS, EU)  # it keeps the rows that are there
        wait_stopped(pipeline, "column card: its parked values were masked by another rule")
        assert lake_counts(pipeline, "items", "n = 1") == 0
    with Pipeline(config_of("redact"), lake_folder) as pipeline:
        wait_stopped(pipeline, "`mask` of the map is another one")  # since that retry
        pipeline.tell("retry", ITEMS, EU)
        pipeline.wait_streaming()
        wait_until(lambda: not parked(lake_folder), "what was parked is applied and removed")
        assert_alike(pipeline, database)
