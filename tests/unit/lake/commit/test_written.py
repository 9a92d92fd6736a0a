from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.commit import chunks
from kuvasz.lake.commit.written import WrittenTable
from kuvasz.lake.executors.tasks import ChunkDone
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.table.write_era import WriteEra
from kuvasz.model import Operations
from kuvasz.ports import TableWork
from tests.support.changes import Sender, insert
from tests.support.lake_table import World, file_of


@pytest.fixture
def written() -> WrittenTable:
    """Two chunks of `eu` with a truncation between them, and one chunk of `us`."""
    eu, us = Sender("eu"), Sender("us")
    first, cleared, second, other = (
        eu.segment([(eu.commit_lsn(), [insert(1, 0, "")])]), eu.truncation(),
        eu.segment([(eu.commit_lsn(), [insert(2, 0, "")])]), us.segment([(us.commit_lsn(), [insert(3, 0, "")])]),
    )  # fmt: skip
    cut = chunks.cut([first, cleared, second, other], {}, 1 << 20)
    done = {
        "eu": [ChunkDone(files=(file_of("a", 1), file_of("b", 1)), operations=(Operations(1, 2, 3),)),
               ChunkDone(files=(file_of("c", 1),), operations=(Operations(10, 20, 30),))],
        "us": [ChunkDone(operations=(Operations(deletes=1),))],
    }  # fmt: skip
    results = tuple(done[step.source].pop(0) if isinstance(step, chunks.Chunk) else step for step in cut.steps)
    work = TableWork(target="shop.items", changes=(), through={})
    era = WriteEra(accepted={})
    return WrittenTable(work=work, cut=cut, steps=cut.steps, results=results, era=era, position_resets={"eu": 1})


def test_a_truncation_has_no_files(written: WrittenTable) -> None:
    assert written.paths() == ["a", "b", "c"]


def test_operations_are_counted_for_each_source(written: WrittenTable) -> None:
    assert written.operations() == {"eu": Operations(11, 22, 33), "us": Operations(0, 0, 1)}


def test_what_is_abandoned_is_removed_with_the_changeset(written: WrittenTable) -> None:
    changeset = Changeset()
    changeset.add(7, file_of("d", 1), None)
    written.abandon_to(changeset)
    assert sorted(file.path for file, _ in changeset.added.values()) == ["a", "b", "c", "d"]


def test_changes_from_before_a_source_was_forgotten_are_refused(written: WrittenTable, tmp_path: Path) -> None:
    table = World(tmp_path).table
    written.era.drop("eu")
    written.check(table)
    written.era.drop("us")
    with pytest.raises(LakeError, match="source us goes on from another position"):
        written.check(table)
