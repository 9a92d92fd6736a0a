"""`origin: none`: what came to a source by replication is left out of its stream, over a restart."""

from __future__ import annotations

import pytest

from kuvasz.config.model import Config
from kuvasz.errors import OtherRule
from kuvasz.source.check import preflight
from kuvasz.verbs import verify
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database, needs

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def make_config(folder: LakeFolder, database: Database, origin: str = "none") -> Config:
    (databases,) = group({"eu": database}, {"items": {}, "log": {"type": "append"}})
    return folder.config([databases | {"urls": [one | {"origin": origin} for one in databases["urls"]]}])


def replicate(database: Database, *statements: str) -> None:
    """Run statements in one transaction as the apply worker of a subscription does."""
    name = f"from_{database.name}"  # a server's origins are its own, whatever the database
    with database.connect() as connection:
        known = "SELECT FROM pg_replication_origin WHERE roname = %s"
        if connection.execute(known, (name,)).fetchone() is None:
            connection.execute("SELECT pg_replication_origin_create(%s)", (name,))
        connection.execute("SELECT pg_replication_origin_session_setup(%s)", (name,))
        for statement in statements:
            connection.execute(statement)


def keys(pipeline: Pipeline, table: str) -> list[int]:
    return sorted(row["id"] for row in pipeline.folder.session.table(
        f"{pipeline.folder.catalog}.shop.`{table}`").toArrow().to_pylist())  # fmt: skip


def test_replicated_rows_are_left_out(database: Database, lake_folder: LakeFolder) -> None:
    needs(database.server, 16, "origin: none")
    for name in ("items", "log"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
        database.execute(f"INSERT INTO {name} VALUES (1, 1)")
    replicate(database, "INSERT INTO items VALUES (2, 2)")
    config = make_config(lake_folder, database)
    try:
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            assert keys(pipeline, "items") == [1, 2]  # a copy cannot tell
            replicate(database, "INSERT INTO items VALUES (3, 3)", "INSERT INTO log VALUES (3, 3)",
                      "DELETE FROM items WHERE id = 2", "UPDATE items SET n = 7 WHERE id = 1")  # fmt: skip
            database.execute("INSERT INTO items VALUES (4, 4)")
            database.execute("INSERT INTO log VALUES (4, 4)")
            pipeline.wait_applied(database)
            assert (keys(pipeline, "items"), keys(pipeline, "log")) == ([1, 2, 4], [1, 4])
        replicate(database, "INSERT INTO items VALUES (5, 5)", "INSERT INTO log VALUES (5, 5)")
        database.execute("UPDATE items SET n = 30 WHERE id = 3")  # from now on it is of this database, too
        with Pipeline(config, lake_folder) as pipeline:
            pipeline.wait_streaming()
            database.execute("INSERT INTO log VALUES (6, 6)")
            pipeline.wait_applied(database)
            assert (keys(pipeline, "items"), keys(pipeline, "log")) == ([1, 2, 3, 4], [1, 4, 6])
            (report,) = verify.reports(config, table="shop.items", session=lake_folder.session, is_fixing=True)
            assert (report.differences, report.mended, report.left) == (3, 0, 3)
            assert report.why_left.startswith("with `origin: none` nothing is mended")
            assert keys(pipeline, "items") == [1, 2, 3, 4], "row 5 is another database's"
        wanted = preflight.StreamOptions(is_own_alone=True)
        found = preflight.check_source(database.url, "shop", "eu", [], wanted=wanted)
        (advice,) = [one for one in found if one.check == "origin"]
        assert (advice.ok, advice.is_blocking) == (False, False)
        assert f"from_{database.name}" in advice.value
    finally:
        database.execute("SELECT pg_replication_origin_drop(%s)", (f"from_{database.name}",))


def test_what_was_left_out_comes_once_it_is_wanted(database: Database, lake_folder: LakeFolder) -> None:
    """The slot has passed it by then: a clone is copied again, and of what keeps the past a person is told."""
    needs(database.server, 16, "origin: none")
    for name in ("items", "log"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int); INSERT INTO {name} VALUES (1, 1)")
    try:
        with Pipeline(make_config(lake_folder, database), lake_folder, until_caught_up=True) as job:
            assert job.ended() == 0
        replicate(database, "INSERT INTO items VALUES (2, 2)", "INSERT INTO log VALUES (2, 2)")
        database.execute("INSERT INTO items VALUES (3, 3)")
        with Pipeline(make_config(lake_folder, database), lake_folder, until_caught_up=True) as job:
            assert job.ended() == 0
            assert keys(job, "items") == [1, 3]
        with Pipeline(make_config(lake_folder, database, "any"), lake_folder, until_caught_up=True) as job:
            assert job.ended() == OtherRule("").exit_code
            assert keys(job, "items") == [1, 2, 3]
            (stopped,) = [one for one in job.app.states.snapshot() if one.error is not None]
            assert (stopped.target, type(stopped.error)) == ("shop.log", OtherRule)
    finally:
        database.execute("SELECT pg_replication_origin_drop(%s)", (f"from_{database.name}",))
