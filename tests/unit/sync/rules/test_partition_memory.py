"""What is remembered of partitions, and what a look makes of it."""

from __future__ import annotations

import dataclasses

import pytest

from kuvasz.config.model import PartitionRemoved, TableConfig
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import ChangesLost, TableError
from kuvasz.model import TableName, TableType
from kuvasz.source.catalog import partitions
from kuvasz.source.catalog.partitions import Partition
from kuvasz.sync.rules import partition_memory
from kuvasz.sync.rules.partition_memory import KnownPartition, KnownPartitions, PartitionChange, SeenPartition
from tests.support.partitions import KNOWN, A, B, C, partition


def compared(
    known: KnownPartitions, *found: Partition, filled: tuple[Partition, ...] = (), stayed: tuple[Partition, ...] = ()
) -> PartitionChange:
    return partition_memory.compare(known, found, is_filled=filled.__contains__, has_stayed=stayed.__contains__)


def test_all_that_is_known_is_remembered() -> None:
    known = KNOWN.looked([partition(10, toast=20), B], 100)
    known = dataclasses.replace(known, since_lsn=0xABC, until_lsn=0xABD, types="1:23:-1 2:1082:-1", has_kept=True)
    known = known.told(12, "public.a b", 0x25C8D0)
    known = known.strayed(10, "public.p 10", 0x25C8D3)
    known = known.truncated_by(741, 0x25C8D1).truncated_by(740, 0x25C8D2)
    assert partition_memory.parse(partition_memory.render(known)) == known
    assert known.seen == (SeenPartition(oid=12, lsn=0x25C8D0, name="public.a b"),)
    assert known.oids == {10, 11, 12}


def test_what_an_earlier_version_wrote_says_nothing_of_files() -> None:
    known = partition_memory.parse({"5:6 10:7", "5:6 11:7"})
    assert known.parts == (KnownPartition(links="5:6 10:7"), KnownPartition(links="5:6 11:7"))
    assert not compared(known, A, partition(11, file=99))
    assert compared(known, A).gone == ("with OID 11",)


def test_nothing_happened() -> None:
    assert not compared(KNOWN, B, A)
    assert partition_memory.is_same(KNOWN, dataclasses.replace(KNOWN, horizon=500))
    assert not partition_memory.is_same(KNOWN, KNOWN.looked([A], 100))


def test_another_file_is_a_truncate_unless_earlier_rows_are_there() -> None:
    again = partition(11, file=99)
    assert compared(KNOWN, A, again).emptied == ("public.p 11",)
    assert not compared(KNOWN, A, again, stayed=(again,))


def test_a_partition_that_may_have_been_unlogged_is_told_from_one_that_was_truncated() -> None:
    one, other = partition(10, file=98), partition(11, file=99)
    change = partition_memory.compare(
        KNOWN, [one, other], is_filled=lambda _: False, has_stayed=lambda _: False, was_unlogged=(one,).__contains__
    )
    assert change == PartitionChange(emptied=("public.p 11",), unlogged=("public.p 10",))
    assert "partition public.p 10 was written anew, maybe after a load without WAL" in str(change)


def test_a_toast_table_tells_that_a_partition_was_always_logged() -> None:
    known = KNOWN.looked([partition(10, toast=20), B], 100)
    assert known.has_toast_of(partition(10, file=98, toast=20))
    for other in (partition(10, file=98, toast=21), partition(11, file=98, toast=20), partition(11, file=98)):
        assert not known.has_toast_of(other)


@pytest.mark.parametrize(
    ("before", "altered", "is_retyped"),
    [
        ("1:23:-1 2:1043:9", {1}, True),
        ("1:23:-1 2:1043:9", {2}, False),
        ("2:1043:9", {1}, False),
        ("", {1}, False),
        ("1:23:-1 2:1043:5 3:23:-1", {2}, True),
        ("1:20:-1 2:1043:9 3:23:-1", {3}, True),
        ("1:20:-1", set(), False),
    ],
)
def test_only_another_type_is_one(before: str, altered: set[int], *, is_retyped: bool) -> None:
    """A column that was added, or got a default, leaves files alone."""
    assert dataclasses.replace(KNOWN, types=before).is_retyped("1:20:-1 2:1043:9", altered) is is_retyped


def test_a_new_partition_is_followed_if_it_came_empty_and_as_it_was_made() -> None:
    assert not compared(KNOWN, A, B, C)
    assert compared(KNOWN, A, B, C, filled=(C,)).attached == ("public.p 12",)
    assert compared(KNOWN, A, B, partition(12, file=99)).emptied == ("public.p 12",)


def test_a_partition_that_hung_elsewhere_may_have_lost_rows() -> None:
    back = partition(11, xid=9)
    assert compared(KNOWN, A, back) == PartitionChange(emptied=("public.p 11",))
    assert compared(KNOWN, A, back, filled=(back,)) == PartitionChange(attached=("public.p 11",))


def test_a_partition_is_gone_whether_a_look_or_only_the_stream_told_of_it() -> None:
    assert compared(KNOWN, A) == PartitionChange(gone=("public.p 11",))
    told = KNOWN.told(12, "public.p 12", 50)
    assert compared(told, A, B) == PartitionChange(gone=("public.p 12",))
    assert not compared(told, A, B, C), "a look shows it now"
    assert not partition_memory.compare(told, [A, B], is_filled=bool, has_stayed=bool, waits=told.seen), (
        "it may be shown yet"
    )
    assert told.looked([A, B, C], 100).seen == ()


def test_the_stream_tells_each_partition_once_and_not_what_a_copy_knew() -> None:
    copied = partition_memory.copied(KNOWN, [A], 100, at=1000)
    assert copied.told(11, "public.p 11", 999) is copied
    assert copied.told(10, "public.p 10", 2000) is copied
    told = copied.told(11, "public.p 11", 1000)
    assert told.told(11, "public.p 11", 2000) is told


def test_rows_that_came_under_another_name_are_missing_until_a_copy_has_them() -> None:
    known = KNOWN.strayed(10, "public.p 10", 1000).strayed(11, "public.p 11", 2000)
    assert compared(known, A, B) == PartitionChange(astray=("public.p 11",))
    assert partition_memory.copied(known, [A], 100, at=2000).astray == known.astray
    assert partition_memory.copied(known, [A], 100, at=2001).astray == ()
    assert partition_memory.copied(known, [A], 100, at=2001).strayed(10, "public.p 10", 2000).astray == ()
    assert known.looked([A, B], 100).astray == ()
    assert [decided(spec(kind), compared(known, A, B)) for kind in (TableType.CLONE, TableType.HISTORY)] == [
        True,
        True,
    ]
    assert isinstance(decided(spec(TableType.CHANGELOG), compared(known, A, B)), TableError)


def test_a_truncate_of_the_table_is_known_while_looks_may_show_it() -> None:
    known = KNOWN.truncated_by(741, 2000)
    assert known.truncated_by(741, 2000) is known
    assert partition_memory.copied(KNOWN, [A], 100, at=3000).truncated_by(741, 2000).truncated == ()
    assert partition_memory.copied(known, [A], 100, at=2000).truncated == known.truncated
    assert partition_memory.copied(known, [A], 100, at=2001).truncated == ()
    for xid in range(20):
        known = known.truncated_by(xid, 3000 + xid)
    assert [one.xid for one in known.truncated] == list(range(12, 20))
    assert known.is_emptied_by_stream(partition(11, xid=19))
    assert not known.is_emptied_by_stream(partition(11, xid=11))


def test_a_copy_forgets_what_was_before_it() -> None:
    before = dataclasses.replace(KNOWN, has_kept=True).told(12, "public.p 12", 50).told(13, "public.p 13", 2000)
    now = partition_memory.copied(before, [A], 300, at=1000)
    assert now == KnownPartitions(
        parts=(partition_memory.part_of(A),), seen=(before.seen[1],), since_lsn=1000, until_lsn=1000, horizon=300
    )
    assert partition_memory.copied(None, [A], 300, at=1000).oids == {10}


def test_parts_are_known_since_they_were_first_found() -> None:
    first = KnownPartitions().looked([A, B], 100, 1000)
    assert first.looked([B, A], 200, 2000).until_lsn == 1000
    assert partition_memory.parse(partition_memory.render(first)).looked([A, B], 200, 2000).until_lsn == 1000
    assert first.looked([A], 200, 2000).until_lsn == 2000
    earlier = KnownPartitions().looked([A, B], 100)  # by a version that did not note it
    assert not partition_memory.is_same(earlier, earlier.looked([A, B], 200, 2000))
    assert partition_memory.is_same(first, first.looked([A, B], 200, 2000))


def on(timeline: int, xid: int = 100) -> int:
    return partitions.blank_horizon(timeline) + xid


def test_a_truncate_explains_no_file_of_a_timeline_that_does_not_have_it() -> None:
    known = KnownPartitions().looked([A, B], on(1), 1000).truncated_by(741, 1999).truncated_by(742, 2000)
    left = known.left(2000, 2)
    assert left.is_emptied_by_stream(partition(11, xid=741))
    assert not left.is_emptied_by_stream(partition(11, xid=742))
    assert not partition_memory.is_same(known, dataclasses.replace(known, horizon=on(2)))
    assert partition_memory.parse(partition_memory.render(left)) == left
    assert (known.timeline, left.timeline, left.since_lsn) == (1, 2, known.since_lsn)


@pytest.mark.parametrize("until_lsn", [0, 2001])
def test_partitions_that_may_hang_by_another_timeline_are_looked_at_like_new_ones(until_lsn: int) -> None:
    left = KnownPartitions().looked([A, B], on(1), until_lsn).told(13, "public.p 13", 50).left(2000, 2)
    assert left.oids == {10, 11, 13}, "what is gone is noticed"
    assert compared(left, A).gone == ("public.p 11", "public.p 13")
    assert not compared(dataclasses.replace(left, seen=()), A, B)
    assert compared(left, A, B, filled=(B,)).attached == ("public.p 11",)
    assert compared(left, A, partition(11, file=99)).emptied == ("public.p 11",)
    assert left.left(5000, 3).parts == left.parts
    assert left.looked([A, B], on(2), 3000) == KnownPartitions().looked([A, B], on(2), 3000)


def test_partitions_that_a_timeline_has_from_before_it_was_left_are_known() -> None:
    known = KnownPartitions().looked([A, B], on(1), 2000)
    assert known.left(2000, 2).parts == known.parts
    assert known.left(2000, 2).left(4000, 3).parts == known.parts, "it may be left again before it is looked at"
    assert known.left(0, 2).parts != known.parts, "where it was left is not known"


def spec(kind: TableType, removed: PartitionRemoved | None = None) -> SourceTableSpec:
    config = TableConfig(type=kind, partition_removed=removed)
    table = TableName(schema="public", name="events")
    return SourceTableSpec(table=table, config=config, namespace="shop", target="events", has_sid=False)


def decided(
    of: SourceTableSpec, change: PartitionChange, known: KnownPartitions = KNOWN, *, is_accepted: bool = False
) -> bool | TableError:
    try:
        return partition_memory.needs_comparison("eu", of, known, change, is_accepted=is_accepted)
    except TableError as error:
        return error


GONE, EMPTIED, ATTACHED = (
    PartitionChange(gone=("public.p",)),
    PartitionChange(emptied=("public.p",)),
    PartitionChange(attached=("public.p",)),
)
UNLOGGED = PartitionChange(unlogged=("public.p",))


@pytest.mark.parametrize("kind", [TableType.CLONE, TableType.HISTORY])
def test_a_clone_and_a_history_are_compared(kind: TableType) -> None:
    assert [decided(spec(kind), change) for change in (GONE, EMPTIED, ATTACHED, PartitionChange())] == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("kind", [TableType.CLONE, TableType.HISTORY])
def test_rows_that_stayed_go_once_the_map_does_not_say_so_any_more(kind: TableType) -> None:
    kept = dataclasses.replace(KNOWN, has_kept=True)
    nothing = PartitionChange()
    assert decided(spec(kind), nothing, kept) is True
    assert decided(spec(kind, PartitionRemoved.KEEP), nothing, kept) is False
    assert not decided(spec(TableType.APPEND), nothing, kept)


def test_rows_of_partitions_that_are_gone_stay_if_the_map_says_so() -> None:
    keeping = spec(TableType.CLONE, PartitionRemoved.KEEP)
    assert [decided(keeping, change) for change in (GONE, EMPTIED, ATTACHED)] == [False, True, True]
    kept = dataclasses.replace(KNOWN, has_kept=True)
    assert decided(keeping, GONE, kept) is False
    error = decided(keeping, EMPTIED, kept)
    assert str(error) == (
        "source eu, table public.events: partition public.p was truncated or rewritten; a comparison with the source"
        " would delete the rows of partitions that are gone, and the map says `partition_removed: keep`\nhint: kuvasz"
        " resync --table shop.events copies the table again, without the rows of partitions that are gone"
    )
    both = decided(keeping, PartitionChange(gone=("public.p",), attached=("public.q",)))
    assert isinstance(both, TableError)


def test_an_append_table_only_cannot_do_without_rows_that_came_with_a_partition() -> None:
    of = spec(TableType.APPEND)
    assert [decided(of, change) for change in (GONE, EMPTIED, UNLOGGED)] == [False, False, True]
    assert str(decided(of, ATTACHED)) == (
        "source eu, table public.events: partition public.p was attached with rows in it, which the stream does not"
        " carry\nhint: copy the table again: kuvasz resync --table shop.events"
    )


def test_a_changelog_that_lacks_a_truncate_waits_for_a_person() -> None:
    of = spec(TableType.CHANGELOG)
    assert decided(of, GONE) is False
    error = decided(of, EMPTIED)
    assert isinstance(error, ChangesLost)
    assert "kuvasz retry --table shop.events goes on without a row that says so" in str(error)
    assert decided(of, EMPTIED, is_accepted=True) is False


@pytest.mark.parametrize("is_accepted", [False, True])
def test_a_changelog_that_may_lack_rows_has_a_gap(*, is_accepted: bool) -> None:
    """Not only a row that says so."""
    change = PartitionChange(emptied=("public.q",), unlogged=("public.p",))
    assert decided(spec(TableType.CHANGELOG), change, is_accepted=is_accepted) is True
