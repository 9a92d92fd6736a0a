"""Random tables, random programs, random restarts: after every phase the lake equals the source.

A few examples, always the same, by default; `HYPOTHESIS_PROFILE=deep` draws many new ones. A failure prints its
program as SQL, and the `reproduce_failure` line that draws it again.
"""

from __future__ import annotations

import contextlib
import os
import shutil

import psycopg
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import Phase as Step

from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.postgres import Database, create_database, drop_database
from tests.support.strategies import NEEDS, Phase, Program, Statement, programs

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

IS_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"


# Shrinking starts the pipeline hundreds of times: the printed program is small enough to be read.
@settings(
    max_examples=int(os.environ.get("KUVASZ_EXAMPLES", "100")) if IS_DEEP else 3,
    derandomize=not IS_DEEP,
    database=None,
    deadline=None,
    print_blob=True,
    phases=(Step.explicit, Step.generate),
    suppress_health_check=list(HealthCheck),
)
@given(program=programs())
def test_the_lake_equals_the_source_after_any_program(
    postgres18: EmbeddedPostgres, spark_session: object, program: Program
) -> None:
    database = create_database(postgres18)
    folder = LakeFolder(spark_session, format_version=program.format_version)
    try:
        Run(database, folder, program).run()
    finally:
        drop_database(database)
        folder.remove()


class Run:
    """One program against one lake."""

    def __init__(self, database: Database, folder: LakeFolder, program: Program) -> None:
        self.database = database
        self.folder = folder
        self.program = program
        targets = group({"eu": database}, {table.name: None for table in program.tables})
        # Small, so that transactions with large values come in parts.
        self.config = folder.config(targets, memory="1MB", transaction_spill_bytes="64kB")

    def run(self) -> None:
        """Run all phases; kuvasz runs on from one to the next unless a phase wants it stopped."""
        self._transaction(
            [(NEEDS, ()), *((text, ()) for table in self.program.tables for text in table.definition())]
        )
        self._transaction(self.program.first)
        left = list(self.program.phases)
        while True:
            with Pipeline(self.config, self.folder) as pipeline:
                pipeline.wait_streaming()
                self._check(pipeline)
                while left and not left[0].while_down:
                    self._phase(left.pop(0))
                    self._check(pipeline)
            if not left:
                return
            phase = left.pop(0)
            self._phase(phase)
            if phase.lose_index:
                note("-- kuvasz loses its state folder")
                shutil.rmtree(self.folder.folder / "state")

    def _phase(self, phase: Phase) -> None:
        note(f"-- kuvasz is {'stopped' if phase.while_down else 'running'}")
        for transaction in phase.transactions:
            self._transaction(transaction)

    def _transaction(self, statements: tuple[Statement, ...] | list[Statement]) -> None:
        with psycopg.connect(self.database.url, cursor_factory=psycopg.ClientCursor) as connection:
            cursor = connection.cursor()
            note("BEGIN;")
            for text, values in statements:
                literal = cursor.mogrify(text, values or None)
                note(f"{literal};")
                try:
                    with connection.transaction() if text.startswith("UPDATE") else contextlib.nullcontext():
                        cursor.execute(literal)
                except psycopg.errors.UniqueViolation:
                    note("-- refused: there is such a key")
            note("COMMIT;")

    def _check(self, pipeline: Pipeline) -> None:
        pipeline.wait_applied(self.database)
        for table in self.program.tables:
            rows = oracle.source_rows(self.database.url, table.name, sid="eu")
            pipeline.assert_equal(table.name, rows, key=("sid", *table.key))


# --- programs that failed once


# Slow: what an index has that is there, the history above meets at each restart.
@pytest.mark.parametrize("lose_index", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_truncate_after_a_restart_finds_the_files_of_its_source(
    database: Database, lake_folder: LakeFolder, lose_index: bool
) -> None:
    database.execute("CREATE TABLE one (id int PRIMARY KEY)")
    database.execute("INSERT INTO one VALUES (1)")
    config = lake_folder.config(group({"eu": database}, {"one": None}))
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
    if lose_index:
        shutil.rmtree(lake_folder.folder / "state")
    with Pipeline(config, lake_folder) as pipeline:
        pipeline.wait_streaming()
        database.execute("TRUNCATE one")
        pipeline.wait_applied(database)
        pipeline.assert_equal("one", oracle.source_rows(database.url, "one", sid="eu"))
