"""The commit of a copy or a repair that landed while nobody could say so: it is neither lost nor made again."""

from __future__ import annotations

import pytest

from kuvasz.config.names import object_name
from kuvasz.errors import LakeError, OutcomeUnknown
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.files.files import Sent
from kuvasz.lake.format import source_positions
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.lake.table import commits
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database
from tests.support.two_tables import EU, ITEMS, fill, lake_counts, wait_let_go
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


class Unanswered:
    """The commit of a table's next copy or repair lands, and the catalog is silent when it is asked for that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._steps = ["commit", "look"]
        commit, has_landed = IcebergTable.commit, commits.Commits._has_landed

        def unanswered(table: IcebergTable, one: TableCommit) -> object:
            found = commit(table, one)
            if table.name == ITEMS and source_positions.PREFIX + EU in one.properties and self._takes("commit"):
                raise OutcomeUnknown("the connection was reset")
            return found

        def silent(self_: commits.Commits, sent: Sent) -> bool:
            if self._takes("look"):
                raise LakeError("the catalog is down")
            return has_landed(self_, sent)

        monkeypatch.setattr(IcebergTable, "commit", unanswered)
        monkeypatch.setattr(commits.Commits, "_has_landed", silent)

    def _takes(self, step: str) -> bool:
        is_due = self._steps[:1] == [step]
        if is_due:
            self._steps.pop(0)
        return is_due

    @property
    def is_over(self) -> bool:
        return not self._steps


# Slow: append tables write as changelogs do, without a kind.
@pytest.mark.parametrize("kind", [pytest.param("append", marks=pytest.mark.slow), "changelog"])
def test_a_table_that_goes_on_with_its_gap_keeps_its_rows_though_the_answer_is_lost(
    database: Database, lake_folder: LakeFolder, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fill(database, 100)
    publication = object_name("shop", "eu")
    database.execute(f"CREATE PUBLICATION {publication} FOR ALL TABLES WITH (publish_via_partition_root = true)")

    items = {"items": {"type": kind}}

    def pipeline_of(tables: dict[str, object]) -> Pipeline:
        return Pipeline(lake_folder.config(group({"eu": database}, {"others": None, **tables})), lake_folder)

    with pipeline_of(items) as pipeline:
        pipeline.wait_streaming()
        database.execute("DELETE FROM items WHERE id <= 10")
        pipeline.wait_applied(database)
    with pipeline_of({}) as pipeline:
        pipeline.wait_streaming()
        database.execute("UPDATE items SET n = 7 WHERE id = 20")
        wait_let_go(database)
    with pipeline_of(items) as pipeline:
        wait_until(pipeline.errors, "the gap is told")
        unanswered = Unanswered(monkeypatch)
        pipeline.tell("retry", ITEMS, EU)
        wait_until(lambda: unanswered.is_over, "its commit landed and nobody knows")
        database.execute("INSERT INTO items VALUES (1000, 8)")
        pipeline.wait_streaming()
        pipeline.wait_applied(database)
        assert lake_counts(pipeline, "items", "n = 8") == 1
        assert lake_counts(pipeline, "items", "id <= 10"), "what was deleted at the source is kept"
