from __future__ import annotations

from pathlib import Path

from kuvasz.sync.rules.partition_memory import KnownPartitions
from kuvasz.sync.watch.partition_notes import PartitionNotes
from tests.support.partitions import KNOWN, A, B
from tests.support.scene import Scene


def test_what_the_stream_tells_beside_a_look_or_a_copy_is_not_forgotten(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    notes = PartitionNotes(scene.context)
    notes.told(scene.items, 12, "public.p 12", 50)  # not prepared: nothing to remember it in
    scene.copy(scene.items)
    assert notes.known(scene.items) is None
    notes.looked(scene.items, None, KNOWN)
    before = notes.known(scene.items)
    notes.told(scene.items, 12, "public.p 12", 50)
    notes.told(scene.items, 12, "public.p 12", 60)
    notes.looked(scene.items, before, KNOWN.looked([A], 200))
    assert notes.known(scene.items) == KNOWN.looked([A], 200).told(12, "public.p 12", 50)
    notes.copied(scene.items, [A], 200, at=55)
    assert notes.known(scene.items) == KnownPartitions(since_lsn=55, until_lsn=55).looked([A], 200, 55)


def test_a_younger_horizon_alone_is_not_stored(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    notes = PartitionNotes(scene.context)
    scene.copy(scene.items)
    notes.looked(scene.items, None, KNOWN)
    notes.looked(scene.items, KNOWN, KNOWN.looked([A, B], 500))
    assert notes.known(scene.items) == KNOWN


def test_a_truncate_and_rows_astray_are_remembered_until_a_look_or_a_copy_has_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    notes = PartitionNotes(scene.context)
    scene.copy(scene.items)
    notes.looked(scene.items, None, KNOWN)
    notes.truncated(scene.items, 741, 50)
    before = notes.known(scene.items)
    notes.strayed(scene.items, 10, "public.p 10", 60)
    notes.looked(scene.items, before, KNOWN.looked([A, B], 200))
    assert notes.known(scene.items) == KNOWN.truncated_by(741, 50).strayed(10, "public.p 10", 60)
    before = notes.known(scene.items)
    notes.looked(scene.items, before, KNOWN.looked([A, B], 200))
    assert notes.known(scene.items) == KNOWN.looked([A, B], 200).truncated_by(741, 50)


def test_what_counts_on_another_timeline_is_stored_at_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    notes = PartitionNotes(scene.context)
    notes.left(scene.items, 1000, 2)  # nothing is known
    scene.copy(scene.items)
    notes.looked(scene.items, None, KNOWN)
    notes.truncated(scene.items, 741, 1000)
    notes.left(scene.items, 1000, 2)
    assert notes.known(scene.items) == KNOWN.left(1000, 2)


def test_a_copy_knows_a_partition_that_was_attached_lately_only_where_all_streams_begin_behind_that(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    notes = PartitionNotes(scene.context)
    scene.copy(scene.items)

    def known() -> set[str]:
        notes.copied(scene.items, [A, B], 200, at=55, unsettled={A.links, B.links})
        found = notes.known(scene.items)
        assert found is not None
        return {part.links for part in found.parts}

    assert known() == set()
    notes.settled(scene.items, {A.links})
    assert known() == {A.links}
    notes.unsettle()
    assert known() == {A.links}, "it is known since"
    notes.settled(scene.items, {B.links})
    assert known() == {A.links, B.links}
