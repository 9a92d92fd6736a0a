"""Changes become files that nothing shows yet, for all targets at once, without Spark."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.commit import chunks
from kuvasz.lake.commit.bundles import sources_of
from kuvasz.lake.executors.tasks import ChunkDone
from kuvasz.lake.files.file_io import file_io
from kuvasz.model import Operations, Segment, TableType, Truncation
from tests.support.changes import ITEMS, SAME, TARGET, Sender, again, delete, feed, insert, target, update, work
from tests.support.examples import examples
from tests.support.local_lake import LocalWorld

OTHER = "shop.others"


@pytest.fixture
def world(local_world: LocalWorld) -> LocalWorld:
    for name in (TARGET, OTHER):
        local_world.prepare("eu", name=name)
    return local_world


def spooled(world: LocalWorld) -> list[Path]:
    return list(Path(world.config.pipeline.state_folder, "spool").iterdir())


def test_all_targets_are_written_by_one_job_and_shown_by_nobody(world: LocalWorld) -> None:
    world.jobs.ran.clear()
    eu, other = Sender(), Sender()
    written = world.lake.write([work(eu.one(insert(1))), work(other.one(insert(2)), target=OTHER)])
    assert world.jobs.ran == ["ApplyChunks"]
    assert (world.rows(), world.rows(OTHER)) == ({}, {})
    assert [len(world.orphans(name)) for name in (TARGET, OTHER)] == [1, 1]
    in_flight = {path.rpartition("/")[2] for path in world.loaded().commits.in_flight}
    assert in_flight == set(world.orphans()), "who looks for orphans must know of them"
    assert spooled(world) == []
    world.commit(written)
    assert world.loaded().commits.in_flight == set()


def test_results_are_in_the_order_of_their_steps(world: LocalWorld) -> None:
    eu = Sender()
    (table,) = world.lake.write([work(eu.one(insert(1), insert(2)), eu.truncation(), eu.one(insert(3)))]).tables
    kinds = [type(result) for result in table.results]
    assert kinds == [ChunkDone, Truncation, ChunkDone]
    assert [sum(file.rows for file in one.files) for one in table.results if isinstance(one, ChunkDone)] == [2, 1]


def test_a_flood_of_truncations_counts_every_row_and_leaves_those_behind_it(world: LocalWorld) -> None:
    eu = Sender()
    flood = [one for number in range(20) for one in (eu.one(insert(1, number), insert(number + 2)), eu.truncation())]
    written = world.lake.write([work(eu.one(update(1, 1)), *flood, eu.one(insert(5, 5)), eu.one(delete(5)))])
    (table,) = written.tables
    assert [type(result) for result in table.results] == [ChunkDone, Truncation, ChunkDone]
    assert table.operations() == {"eu": Operations(41, 1, 1)}
    world.commit(written)
    assert world.of("eu") == {}


def _flooded(rng: random.Random) -> list[list[Segment | Truncation]]:
    """Commits of two sources whose transactions truncate again and again, and change what they have filled since."""
    senders = {name: Sender(name, start=start) for name, start in (("eu", 1000), ("us", 90_000))}
    live: dict[str, set[int]] = {name: set() for name in senders}

    def transaction(name: str) -> Iterator[Segment | Truncation]:
        sender, mine, rows = senders[name], live[name], list[bytes]()
        lsn = sender.commit_lsn()
        for _ in range(rng.randint(1, 12)):
            key, what = rng.randrange(6), rng.random()
            if what < 0.3:
                if rows:
                    yield sender.segment([(lsn, rows)])
                yield sender.truncation(lsn)
                mine.clear()
                rows = []
            elif key not in mine:
                mine.add(key)
                rows.append(insert(key, rng.randrange(99), f"x{rng.randrange(9)}"))
            elif what < 0.8:
                rows.append(update(key, rng.randrange(99), rng.choice([SAME, f"y{rng.randrange(9)}"])))
            else:
                mine.remove(key)
                rows.append(delete(key))
        if rows:
            yield sender.segment([(lsn, rows)])

    commits = range(rng.randint(1, 4))
    return [
        [*itertools.chain.from_iterable(transaction(rng.choice(["eu", "us"])) for _ in range(5))] for _ in commits
    ]


@pytest.mark.parametrize(("table_type", "is_soft"), [*((kind, False) for kind in TableType), (TableType.CLONE, True)])
def test_a_flood_of_truncations_shows_the_same_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: TableType, is_soft: bool
) -> None:
    """Whatever is left out, joined or put together because another TRUNCATE follows."""

    def alone(truncations: chunks._Truncations, one: Truncation) -> None:
        truncations._filling.pop(one.source, None)
        truncations._steps.append(one)

    def shown(place: Path, commits: list[list[Segment | Truncation]]) -> list[str]:
        place.mkdir()
        made = LocalWorld(place)
        for source in ("eu", "us"):
            made.lake.prepare(
                dataclasses.replace(target(table_type=table_type), is_soft=is_soft), feed(source), ITEMS
            )
            made.copy(source)
        for changes in commits:
            made.applied(work(*(again(one) if isinstance(one, Segment) else one for one in changes)))
        rows = sorted(map(str, made.table(TARGET).to_pylist()))
        made.lake.close()
        return rows

    for seed in range(examples(6)):
        commits = _flooded(random.Random(seed))  # noqa: S311 (no secret)
        found = shown(tmp_path / f"{seed}", commits)
        with monkeypatch.context() as patch:
            patch.setattr(chunks._Truncations, "add", alone)
            assert found == shown(tmp_path / f"{seed} alone", commits)


def test_a_truncate_is_a_row_of_a_changelog(world: LocalWorld) -> None:
    name = "shop.log"
    world.lake.prepare(target(name, table_type=TableType.CHANGELOG), feed(name=name), ITEMS)
    world.copy("eu", name=name)
    (table,) = world.lake.write([work(Sender().truncation(), target=name)]).tables
    (result,) = table.results
    assert isinstance(result, ChunkDone)
    assert [file.rows for file in result.files] == [1]


def test_a_job_that_failed_may_be_given_the_same_changes_again(world: LocalWorld) -> None:
    eu = Sender()
    segment = eu.one(insert(1, 1))
    world.jobs.failures.append("an executor died")
    with pytest.raises(LakeError, match="an executor died"):
        world.lake.write([work(segment)])
    assert (world.orphans(), spooled(world)) == ([], [])
    world.applied(work(again(segment)))
    assert world.of("eu") == {1: (1, "b")}


def test_a_job_that_fails_behind_its_files_leaves_none(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def hit(name: str, error: type[Exception]) -> None:
        if name == "after_data_files":
            raise error(name)

    monkeypatch.setattr("kuvasz.lake.commit.write_stage.failpoints.hit", hit)
    with pytest.raises(LakeError):
        world.lake.write([work(Sender().one(insert(1)))])
    assert (world.orphans(), spooled(world)) == ([], [])


@pytest.mark.parametrize("option", [
    {"mask": {"body": "redact"}}, {"exclude": frozenset({"body"})}, {"columns": frozenset({"id", "n"})},
])  # fmt: skip
def test_what_the_lake_is_not_to_show_is_spooled_unreadable(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch, option: dict
) -> None:
    """And it costs nothing where the lake shows all."""
    seen: list[bytes] = []

    def hit(name: str, _: type[Exception]) -> None:
        if name == "before_data_files":
            seen.extend(path.read_bytes() for path in spooled(world))

    monkeypatch.setattr("kuvasz.lake.commit.write_stage.failpoints.hit", hit)
    hiding = dataclasses.replace(target("shop.hiding"), **option)
    world.lake.prepare(hiding, feed(name=hiding.name), ITEMS)
    world.copy("eu", name=hiding.name)
    eu, other = Sender(), Sender()
    world.applied(
        work(eu.one(insert(1, 7, "Zq7hidden")), target=hiding.name), work(other.one(insert(2, 8, "Zq7shown")))
    )
    (written,) = seen
    assert b"Zq7shown" in written
    assert b"Zq7hidden" not in written
    assert world.of("eu", hiding.name)[1][0] == 7
    assert world.of("eu") == {2: (8, "Zq7shown")}


@pytest.mark.parametrize("option", [
    {}, {"mask": {"a": "redact"}}, {"exclude": frozenset("a")}, {"columns": frozenset()}, {"filter": "a > 1"},
    {"set": {"a": "a"}},
])  # fmt: skip
def test_a_target_hides_by_any_of_these_options(option: dict) -> None:
    assert dataclasses.replace(target(), **option).is_hiding is bool(option)


def test_what_was_written_is_not_written_again(world: LocalWorld) -> None:
    segment = Sender().one(insert(1))
    world.lake.write([work(segment)])
    (table,) = world.lake.write([work(again(segment))]).tables
    assert (table.steps, table.cut.skipped) == ((), 1)


def test_a_bad_value_is_told_with_its_commit_and_stops_no_other_table(world: LocalWorld) -> None:
    eu, other = Sender(), Sender()
    good, bad = eu.one(insert(1, 1)), eu.one(insert(2, 2), insert(3, "seven"))
    lsn = f"0/{int(bad.transactions.commit_lsn[0]):X}"
    first, second = world.lake.write([work(good, bad), work(other.one(insert(9)), target=OTHER)]).tables
    assert lsn in first.refused["eu"].message
    assert (first.steps, second.refused, first.error, second.error) == ((), {}, None, None)
    assert len(world.orphans()) == 0, "not even of what was right"


def test_what_shares_a_file_with_what_is_wrong_is_written_once_more_without_it(world: LocalWorld) -> None:
    """And no file counts as newer than what its source wrote behind it."""
    world.prepare("us", "ap")
    eu, us, ap = Sender(), Sender("us"), Sender("ap")
    world.applied(work(ap.segment([(1050, [insert(2)])])))
    large = ap.segment([(ap.commit_lsn() + 500, [insert(1, 2, "x" * 40_000)])])
    world.jobs.ran.clear()
    (table,) = world.lake.write(
        [work(eu.one(insert(1)), us.one(insert(1, "x1")), ap.one(insert(1, 1)), large)]
    ).tables
    assert world.jobs.ran == ["ApplyChunks"] * 2
    assert table.refused.keys() == {"us"}
    assert [sources_of(step) for step in table.steps] == [("eu", "ap")]
    orders = [result.order for result in table.results if isinstance(result, ChunkDone)]
    assert orders == sorted(orders)
    assert sorted(world.loaded().commits.in_flight) == sorted(table.paths())


@pytest.mark.parametrize(("wrong", "chunks"), [({"s0"}, [2, 1]), ({"s0", "s1"}, [2, 1, 2])])
def test_what_shares_no_file_with_what_is_wrong_is_not_written_again(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch, wrong: set[str], chunks: list[int]
) -> None:
    """Four of eight sources share a file here; once more than one of a file is wrong, each has one of its own."""
    names = [f"s{number}" for number in range(8)]
    world.prepare(*names)
    given: list[int] = []
    run = world.jobs.run

    def counted(job: Any, tasks: Any, *more: Any) -> list[Any]:
        given.append(len(tasks))
        return run(job, tasks, *more)

    monkeypatch.setattr(world.jobs, "run", counted)
    rows = [Sender(name).one(insert(1, "x" if name in wrong else 1, "x" * 450_000)) for name in names]
    (table,) = world.lake.write([work(*rows)]).tables
    assert (table.refused.keys(), given) == (wrong, chunks)
    assert [source for step in table.steps for source in sources_of(step)] == [n for n in names if n not in wrong]


def test_a_store_that_fails_while_sources_are_told_apart_leaves_nothing(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.prepare("us")
    works = [work(Sender().one(insert(1)), Sender("us").one(insert(1, "x1")))]
    monkeypatch.setattr(world.jobs, "run", _fails_second(world.jobs.run))
    with pytest.raises(LakeError, match="an executor died"):
        world.lake.write(works)
    assert (world.orphans(), world.loaded().era.refused, spooled(world)) == ([], {}, [])
    failure, receipt = world.apply(*works)
    assert (failure.source, receipt.positions.keys()) == ("us", {"eu"})


def _fails_second(run: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    ran = itertools.count(1)

    def once(*arguments: Any) -> list[Any]:
        if next(ran) == 2:
            raise LakeError("an executor died")
        return run(*arguments)

    return once


def test_a_store_that_removes_nothing_loses_nothing(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client's errors are of any kind; what stays is an orphan, which is looked for."""
    world.prepare("us")

    def fail(*_: object) -> None:
        raise ValueError("AccessDenied")

    monkeypatch.setattr(file_io(world.config.lake.properties, "file://"), "delete", fail)
    us = Sender("us")
    failure, receipt = world.apply(
        work(us.one(insert(1)), us.truncation(), us.one(insert(2, "x1")), Sender().one(insert(1)))
    )
    assert (failure.source, receipt.positions.keys()) == ("us", {"eu"})


def test_a_table_that_has_failed_is_passed_over(world: LocalWorld) -> None:
    world.apply(work(Sender().one(insert(1, "seven"))))
    world.jobs.ran.clear()
    assert world.lake.write([work(Sender(start=5000).one(insert(2)))]).tables == ()
    assert world.jobs.ran == []
