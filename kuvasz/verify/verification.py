"""``kuvasz verify``: one source table against its lake table, at one LSN, whether or not a kuvasz is running.

The source is read under the exported snapshot of a temporary slot: what committed before its consistent point S, and
nothing else. The lake is read at a snapshot of its own, and what that holds is known as exactly. Let c be what the
source's slot had confirmed *before* the lake was looked at, and p the position stored with the lake's snapshot:

- everything before p is in it, and nothing that commits later (the position travels with the rows);
- everything before c is in it (only what is durable is confirmed), so between p and c the table had no changes.

So the lake shows the source as it was at q = max(p, c). If a kuvasz runs, c passes S after a moment, and that is
waited for, so S <= q. A key that differs either changed at the source between S and q, and then the temporary slot's
own stream tells so, and tells what the row was at q; or it did not, and then lake and source really differ. If no
kuvasz runs, q may lie before S: then what the permanent slot holds between q and S is not applied yet, which is no
difference; it is read from that slot without confirming anything. Nobody else can read the slot meanwhile: a kuvasz
that is started waits for it, also until what differs is mended.

With a staged log c is not what the slot has confirmed, which is what is staged, but how far the group of the log has
applied that to its lake, as the log's index says (`kuvasz.verify.staged_alignment`); that passes S while it runs, and
is waited for, and else nothing is compared. So two lakes of one log are compared with the source, each by its map.

An update that leaves out a large unchanged value does not say what the row is at q: its key is looked at again with
another snapshot, a few times, and is *undecided* at last.

What is compared depends on what the table's type lets be known (`_WHAT`). Where a table keeps what was, the newest
row of each key is what the source must have; of rows without a key only so much, that the lake has them too.

`--fix` commits the source's rows, as of S, of keys that did not change between S and where the source's WAL ended
when the very snapshot of the lake was looked at that the commit is made upon; Iceberg refuses the commit if there
is a newer one. A running kuvasz is asked to wait a moment (`kuvasz.lake.table.commit_yield`), else a busy table
would hardly leave a gap. The stored position would not do: what a running kuvasz finds nothing to change by, as the
DELETE of a row that the lake lacks, makes no snapshot. So keys that changed before the commit was there are looked
at again. And of each key the lake must have just the rows that were compared (`kuvasz.verify.standing`).

What a table keeps of the past is nobody's to make up: of a history only open versions are mended, and append and
changelog tables not. Nor is it anybody's to remove: where the rows of partitions that are gone stay
(`partition_removed: keep`), they are extra, and left. With `origin: none` nobody can tell what the lake lacks from
what it is not to have: nothing is mended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kuvasz import lsn
from kuvasz.config.model import Origin
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import (
    ForeignChange,
    KuvaszError,
    OutcomeUnknown,
    SlotLost,
    SourceError,
    TableError,
    another_cluster,
    place_of,
    resync_of,
)
from kuvasz.fold.difference import Difference, DifferenceKind, find
from kuvasz.fold.events import Fault
from kuvasz.fold.keys import Keys
from kuvasz.lake.compare.comparison import Comparison, Side
from kuvasz.lake.compare.growing import GrowingComparison
from kuvasz.lake.copies.repair import wanted_keys
from kuvasz.lake.executors.comparison_tasks import Fetched, LakeFile
from kuvasz.lake.format import naming
from kuvasz.lake.table.table import LakeTable
from kuvasz.model import PgType, SourcePosition, TableType
from kuvasz.source import conninfo, failure, inserts, slots, snapshot
from kuvasz.source.catalog import introspect, sizes
from kuvasz.source.catalog.table import SourceTable, TableKind
from kuvasz.source.window import Window, split
from kuvasz.state.staged.ports import LogIndex
from kuvasz.sync.context.alignment import Alignment
from kuvasz.sync.rules import eligibility, keyless
from kuvasz.sync.rules.copy_plan import copy_ranges
from kuvasz.sync.rules.left_out.copy_condition import copy_condition
from kuvasz.sync.rules.partition_memory import is_keeping
from kuvasz.sync.rules.targets import feed_of, narrowed, target_of
from kuvasz.sync.watch.renames import located
from kuvasz.sync.watch.schema_watch import publications_of
from kuvasz.verify.moved import KeyHistory
from kuvasz.verify.read_only import ReadOnlyLake, look, mend
from kuvasz.verify.report import SHOWN, DifferingKey, Report
from kuvasz.verify.staged_alignment import StagedAlignment
from kuvasz.verify.standing import Since, standing

BoolMask: TypeAlias = npt.NDArray[np.bool_]

_RANGE_BYTES = 64 << 20

#: Running transactions may keep a snapshot waiting for so long.
_BLOCKED_S = 60.0

#: Snapshots taken for keys that could not be decided, or not be mended.
_ROUNDS = 5
#: Attempts at a commit while those of a running kuvasz that had begun come in.
_COMMITS = 10

#: What is compared, by table type and whether rows have a key.
_WHAT = {
    (TableType.CLONE, True): "all rows",
    (TableType.CLONE, False): "all rows, by hash and count",
    (TableType.HISTORY, True): "open versions; all versions: no overlap, no gap",
    (TableType.APPEND, True): "the newest row of each key at the source",
    (TableType.CHANGELOG, True): "the last event of each key; no event twice",
    (TableType.APPEND, False): "each row at the source is there",
    (TableType.CHANGELOG, False): "each row at the source is there; counts",
}
_UNORDERED = "each key's row at the source is among its rows"
_INSERTS = "counts: at least as many rows as the source"

_LEFT_OUT = "it lacks what its source had when it was taken in (initial: skip), until {resync} copies it"
_KEPT = (
    "rows that a table of type {kind} keeps are not made up: {resync} copies the table in place of all that it has"
)
_VERSIONS = (
    "versions that do not fit together, or of which two are open, are not mended: correct them in the lake, or drop"
    " the table there: it is copied anew"
)
_GONE = (
    "the map says `partition_removed: keep`, so what the source lacks is left: it may be of a partition that is gone."
    " {resync} copies the table again, without such rows"
)
_OTHERS = (
    "with `origin: none` nothing is mended: the lake may lack a row because it came to the source by replication."
    " {resync} copies the table again, with all rows of the source"
)
_SOFT = "where deleted rows stay none is mended: {resync} copies the table again, without those deleted before"

#: Source, lake table, what is being done, parts done, parts in all.
OnProgress = Callable[[str, str, str, int, int], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _SnapshotRound:
    """What came of one snapshot."""

    at: int  #: LSN of the source that the lake showed
    found: Difference  #: as read
    certain: Difference  #: what is left when the stream was looked at
    undecided: BoolMask  #: per key of `found`
    rows: dict[str, int] = dataclasses.field(default_factory=dict)
    waiting: int = 0
    mended: Keys = dataclasses.field(default_factory=Keys.empty)
    shown: tuple[DifferingKey, ...] = ()
    named: tuple[str, ...] = ()  #: the columns whose values are shown
    compared: str = ""
    faults: int = 0  #: keys of a history whose versions do not fit together
    rejected: int = 0  #: rows of the source that do not fit
    lacks: int = 0  #: rows that the lake lacks, where rows can only be counted; less than 0: that it has more
    has_kept: bool = False  #: what the source lacks may be of a partition that is gone, and stays

    @property
    def unmended(self) -> Keys:
        """Keys that differ for certain and were not mended."""
        return self.certain.keys.take(~_is_among(self.certain.keys, self.mended))


class Verification:
    """Compares tables of one source.

    Args:
        source: From the map.
        lake: Where to look.
        is_fixing: Mend what differs.
        on_progress: Told how far it is.
        index: Where it is known how far the lake is with what is staged; None: the source's slot says it.
    """

    def __init__(
        self,
        source: Source,
        lake: ReadOnlyLake,
        *,
        is_fixing: bool,
        on_progress: OnProgress,
        index: LogIndex | None = None,
    ) -> None:
        self._source = source
        self._url = source.url.get
        self._replication_url = functools.partial(slots.url_of, source)
        self._lake = lake
        self._is_fixing = is_fixing
        self._on_progress = on_progress
        self._alignment = Alignment(source) if index is None else StagedAlignment(source, index)
        self._gave_up: SourceError | None = None  #: why no table of the source can be compared

    def run(self, spec: SourceTableSpec, why_not: str = "") -> Report:
        """Compare one table; errors are part of the report.

        Args:
            spec: What the map says of the table.
            why_not: What a running kuvasz says of the table, if it does not follow.
        """
        begin = time.monotonic()
        report = Report(
            source=self._source.name, table=str(spec.table), target=spec.identifier, is_member=bool(spec.member)
        )
        try:
            report = self._run(spec, report, why_not)
        except KuvaszError as error:
            report = dataclasses.replace(report, error=error.message, hint=error.hint, error_code=error.exit_code)
        return dataclasses.replace(report, seconds=round(time.monotonic() - begin, 3))

    def _run(self, spec: SourceTableSpec, report: Report, why_not: str) -> Report:
        target, name = target_of(spec, self._lake.mask_secret), self._source.name_of(spec)
        if why_not:
            message = f"{self._place(spec)}: it does not follow its source: {why_not}"
            raise TableError(message, hint="have it follow first: kuvasz resume, or retry")
        table = self._lake.table(target)
        if table is None:
            return _passed_over(report, "the lake has no such table yet")
        look(table)
        if name not in table.positions and table.notes.published(name) is None:  # else the rows of before are there
            return _passed_over(report, "it was not copied yet")
        if table.notes.skipped(name):
            return dataclasses.replace(report, skipped=_LEFT_OUT.format(resync=resync_of(table.name)))
        self._check_follows(spec, table)
        _position(table, self._source, spec)
        if self._gave_up is not None:
            raise self._gave_up
        versions = self._lake.table(target) if self._is_fixing and target.type is TableType.HISTORY else None
        rounds: list[_SnapshotRound] = []
        keys: Keys | None = None
        try:
            while len(rounds) < _ROUNDS and (keys is None or len(keys)):
                rounds.append(self._round(spec, table, keys, versions))
                keys = self._open(rounds[-1], table)
        finally:
            if versions is not None:
                versions.index.reset()
        report = dataclasses.replace(report, gaps=len(table.notes.gaps(name)))
        report = _report(report, table, rounds, can_mend=self._can_mend(table))
        if report.left and self._source.origin is Origin.NONE:
            report = dataclasses.replace(report, why_left=_OTHERS.format(resync=resync_of(table.name)))
        return report

    def _can_mend(self, table: LakeTable) -> bool:
        is_telling = self._source.origin is Origin.ANY
        return self._is_fixing and is_telling and not table.definition.is_growing and not table.target.is_soft

    def _check_follows(self, spec: SourceTableSpec, table: LakeTable) -> None:
        """Refuse a table of which nobody can tell how far the lake is.

        Raises:
            TableError: It is such a table.
        """
        # What is confirmed says nothing of a table of which changes are parked.
        if table.notes.parked(self._source.name_of(spec)) is not None:
            raise TableError(
                f"{self._place(spec)}: changes wait in the state folder since it was stopped or paused: how far"
                " the lake is cannot be told",
                hint="have kuvasz apply them first: kuvasz resume, or retry",
            )

    def _open(self, done: _SnapshotRound, table: LakeTable) -> Keys:
        """Return the keys to be looked at again."""
        mask = done.undecided.copy()
        if self._can_mend(table):
            mask |= _is_among(done.found.keys, done.unmended.take(np.flatnonzero(_mendable(done, table))))
        return done.found.keys.take(mask)

    def _round(
        self, spec: SourceTableSpec, table: LakeTable, keys: Keys | None, versions: LakeTable | None
    ) -> _SnapshotRound:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(contextlib.closing(self._connect()))
            stack.enter_context(failure.translated(place_of(self._source.name), f"compare {spec.table}"))
            self._check_cluster(connection, spec, table)
            spec = self._located(connection, spec, table)
            taken = stack.enter_context(self._snapshot(spec))
            confirmed = self._aligned(connection, spec, taken.consistent_point)
            if keys is not None and self._can_mend(table):
                # Where many small files come, those with these keys' rows were merged meanwhile: not so again.
                table.turn.ask()
                stack.callback(table.turn.stop_asking)
            look(table)
            self._check_follows(spec, table)
            at = max(_position(table, self._source, spec).lsn, confirmed)
            if at > taken.consistent_point:
                _check_past(taken.pinned(conninfo.conninfo(self._url())), at, self._place(spec))
            seen, requests, names = self._requests(spec, taken)
            compare = functools.partial(
                self._lake.comparison, table, feed_of(self._source, spec), seen.relation,
                on_progress=self._progress(spec), at_us=taken.taken_us,
            )  # fmt: skip
            comparison = compare(requests)
            stack.callback(comparison.close)
            one = _Compared(
                spec=spec, table=table, versions=versions, taken=taken, at=at, comparison=comparison,
                has_only_inserts=keyless.has_only_inserts(seen), names=names,
                since=_since(compare, {entry.number for entry in table.index.files}),
                oid=seen.relation.oid, has_kept=seen.kind is TableKind.PARTITIONED and is_keeping(spec),
                rule=table.notes.rule(self._source.name_of(spec)),
            )  # fmt: skip
            done = self._compared(stack, one, keys)
            if keys is None and table.target.type is TableType.HISTORY:
                done = _with_faults(done, comparison)
            return done

    def _located(self, connection: Any, spec: SourceTableSpec, table: LakeTable) -> SourceTableSpec:  # noqa: ANN401 (psycopg's)
        """Return a table by the name that it has now."""
        known = table.columns.known.get(self._source.name_of(spec))
        if known is None or spec.member:
            return spec
        names = located(connection, {spec.key: (spec.table, known.oid)})
        return dataclasses.replace(spec, table=names.get(spec.key, spec.table))

    def _compared(self, stack: contextlib.ExitStack, one: _Compared, keys: Keys | None) -> _SnapshotRound:
        table, comparison = one.table, one.comparison
        found = one.difference(keys)
        rows = one.counted()
        done = _SnapshotRound(at=one.at, found=found, certain=found, undecided=np.zeros(len(found), np.bool_),
                      rows=comparison.rows, named=comparison.shown, compared=one.what,
                      rejected=comparison.rejected.rows.total(), has_kept=one.has_kept)  # fmt: skip
        if len(found) == 0 and not one.lacks(*rows):
            one.check_names(self._url())
            return done
        # All that needs the snapshot comes before the stream, which ends it.
        values = key_values(comparison, found)
        fetched: list[Fetched] = []
        if self._can_mend(table):
            fetched = comparison.fetch(wanted_keys(found), table)
            stack.callback(lambda: comparison.discard(fetched))
        one.check_names(self._url())
        feed = feed_of(self._source, one.spec)
        moved = KeyHistory(found, lambda relation: table.columns.shapes.of_now(feed, relation), self._lake.session)
        window = self._window(stack, one)
        is_followed = one.at >= one.taken.consistent_point
        done = _decide(done, moved, window, one) if is_followed else _leave_waiting(done, moved, window, one)
        source_rows = moved.counted(rows[0], is_ahead=not is_followed) if one.is_counted else None
        done = dataclasses.replace(done, lacks=0 if source_rows is None else one.lacks(source_rows, rows[1]))
        if self._can_mend(table):
            done = self._mend(one, done, moved, window, fetched)
        return dataclasses.replace(done, shown=_shown(done.certain, values))

    def _connect(self) -> Any:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        try:
            return conninfo.connect(self._url())
        except SourceError as error:
            self._gave_up = error
            raise

    def _check_cluster(self, connection: Any, spec: SourceTableSpec, table: LakeTable) -> None:  # noqa: ANN401
        known = _position(table, self._source, spec).system_id
        now = str(introspect.server(connection).system_identifier)
        if known and known != now:
            raise SlotLost(
                f"{self._place(spec)}: cluster {now} answers, but the lake holds rows of cluster {known}",
                hint=another_cluster(self._source.name),
            )

    def _place(self, spec: SourceTableSpec) -> str:
        return place_of(self._source.name, spec.table)

    def _snapshot(self, spec: SourceTableSpec) -> slots.ExportedSnapshot:
        name = f"{self._source.object_name[:48]}_verify_{random.getrandbits(24):06x}"
        begin = time.monotonic()

        def waiting(blockers: tuple[slots.Blocker, ...]) -> None:
            told = ", ".join(blocker.describe() for blocker in blockers) or "running transactions"
            self._on_progress(self._source.name, spec.identifier, f"wait for {told}", 0, 0)
            if time.monotonic() - begin > _BLOCKED_S:
                message = f"{place_of(self._source.name)}: no snapshot in {_BLOCKED_S:.0f} s, because of {told}"
                self._gave_up = SourceError(message, hint="verify again when these transactions have ended")
                raise self._gave_up

        replication = conninfo.replication_conninfo(self._replication_url())
        return slots.create(replication, name, temporary=True, on_waiting=waiting)

    def _aligned(self, connection: Any, spec: SourceTableSpec, point: int) -> int:  # noqa: ANN401 (psycopg's)
        def waiting() -> None:
            self._on_progress(self._source.name, spec.identifier, "wait for the lake", 0, 0)

        return self._alignment.wait(connection, point, self._place(spec), waiting)

    def _requests(
        self, spec: SourceTableSpec, taken: slots.ExportedSnapshot
    ) -> tuple[SourceTable, Sequence[snapshot.CopyRange], snapshot.Names]:
        plain = taken.pinned(conninfo.conninfo(self._url()))
        with snapshot.session(plain, taken.snapshot_name) as connection:
            found = introspect.load_relation(connection, spec.table, publications_of(self._source))
            seen = eligibility.checked(self._source.name, spec, found)
            names = snapshot.Names.of(connection, seen)
            seen = sizes.sized(connection, seen)
        seen = dataclasses.replace(seen, relation=narrowed(spec, seen.relation))
        ranges = copy_ranges(
            seen, conninfo=plain, url=self._url, snapshot_name=taken.snapshot_name, target_bytes=_RANGE_BYTES,
            where=copy_condition(spec, seen.relation),
        )  # fmt: skip
        return seen, ranges, names

    def _window(self, stack: contextlib.ExitStack, one: _Compared) -> Window:
        """Return the stream from the snapshot on, or, if the lake lies before it, from what is confirmed on."""
        slot, oid = self._source.object_name, one.oid
        publications = [inserts.object_name(slot) if one.has_only_inserts else slot]
        if one.at >= one.taken.consistent_point:
            return one.taken.window(publications, oid, self._types, self._source.name)
        pgconn = conninfo.connect_pq(conninfo.replication_conninfo(self._replication_url()), f"read slot {slot}")
        stack.callback(pgconn.finish)
        window = Window(pgconn, slot, publications, oid, self._types, self._source.name)
        _check_stopped(self._url(), slot, one.at, self._place(one.spec))  # from here on nobody else can read the slot
        return window

    def _types(self, oids: list[int]) -> dict[int, PgType]:
        with contextlib.closing(conninfo.connect(self._url())) as connection:
            return introspect.load_types(connection, oids)

    def _progress(self, spec: SourceTableSpec) -> Callable[[str, int, int], None]:
        return lambda phase, done, total: self._on_progress(self._source.name, spec.identifier, phase, done, total)

    def _mend(
        self, one: _Compared, done: _SnapshotRound, moved: KeyHistory, window: Window, fetched: list[Fetched]
    ) -> _SnapshotRound:
        """Commit the source's rows of the differing keys that have not changed since its snapshot.

        Args:
            one: What was compared; its table as looked at.
            done: The round so far.
            moved: What changed since the snapshot, as far as the window was read.
            window: What changes further. If nobody else commits it is the source's own slot: as long as that can be
                read here, nobody else begins to.
            fetched: The rows; emptied once a snapshot of the lake knows them.
        """
        table = one.table
        # Commits that are under way already still come in; after these, nobody's does until ours.
        table.turn.ask()
        try:
            for _ in range(_COMMITS):
                look(table)
                _position(table, self._source, one.spec)
                one.check_rule(self._source)
                one.catch_up(self._url(), moved, window)
                with contextlib.suppress(ForeignChange):
                    mended = self._commit(one, done, _unmoved(done, moved, table), fetched).mended
                    if len(mended):
                        one.catch_up(self._url(), moved, window)
                    is_touched = moved.touched[find(done.found.keys, mended)]
                    return dataclasses.replace(done, mended=mended.take(~is_touched))
            return done
        finally:
            table.turn.stop_asking()

    def _commit(
        self, one: _Compared, done: _SnapshotRound, left: Difference, fetched: list[Fetched]
    ) -> _SnapshotRound:
        table, feed = one.table, feed_of(self._source, one.spec)
        left = standing(left, table.index.files, one.since)
        if len(left) == 0:
            return done
        try:
            if one.versions is None:
                mend(table, feed, left, fetched)
            else:
                self._lake.mend_versions(
                    one.versions, feed, left, fetched, at_us=one.taken.taken_us, snapshot_id=table.index.snapshot_id
                )
        except OutcomeUnknown:
            fetched.clear()  # they may be in the table
            raise
        fetched.clear()
        return dataclasses.replace(done, mended=left.keys)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """Source and lake, side by side."""

    spec: SourceTableSpec
    table: LakeTable
    versions: LakeTable | None  #: the same once more, for a history that is mended
    taken: slots.ExportedSnapshot
    at: int  #: LSN of the source that the lake shows
    comparison: Comparison
    has_only_inserts: bool  #: are published
    names: snapshot.Names  #: of the source table, as its snapshot shows them
    since: Since  #: see `kuvasz.verify.standing`
    oid: int  #: of the source table
    has_kept: bool  #: see `_SnapshotRound`
    rule: str | None  #: of the map, by which the rows are made that were compared

    def catch_up(self, url: str, moved: KeyHistory, window: Window) -> None:
        """Have the stream told as far as the lake may be with it by now.

        Raises:
            SourceError: The source failed.
        """
        with contextlib.closing(conninfo.connect(self.taken.pinned(conninfo.conninfo(url)))) as connection:
            end = introspect.wal_end(connection)
        _take(moved, window, 0, end)

    def check_rule(self, source: Source) -> None:
        """Refuse to mend rows that the map of a running kuvasz makes otherwise by now: masked, say.

        Raises:
            TableError: Another map makes them.
        """
        if self.table.notes.rule(source.name_of(self.spec)) != self.rule:
            message = (
                f"{place_of(source.name, self.spec.table)}: its rows are made by another map since it was compared"
            )
            raise TableError(message, hint="verify again, with that map")

    def check_names(self, url: str) -> None:
        """Make sure that what was read of the source is what its snapshot shows.

        Raises:
            SourceError: Columns or names were altered meanwhile.
        """
        self.names.check(self.taken.pinned(conninfo.conninfo(url)), "verify again")

    def difference(self, keys: Keys | None) -> Difference:
        """Compare the rows of some keys, or all."""
        if self.is_count:
            return Difference.concat([])
        return self.comparison.difference() if keys is None else self.comparison.difference_of(keys)

    @property
    def is_count(self) -> bool:
        """Whether nothing but numbers of rows can be compared."""
        return self.table.definition.is_growing and not self.table.definition.key and self.has_only_inserts

    @property
    def is_counted(self) -> bool:
        """Whether the numbers of rows have to be the same, or nothing else can be told."""
        return self.is_count or (self.table.target.type is TableType.CHANGELOG and not self.table.definition.key)

    @property
    def what(self) -> str:
        """What is compared, for people."""
        if self.is_count:
            return _INSERTS
        return (
            _WHAT[self.table.target.type, bool(self.table.definition.key)]
            if self.comparison.is_ordered
            else _UNORDERED
        )

    def counted(self) -> tuple[int, int]:
        """Return how many rows the source has and how many the lake says it has, where that is to be the same."""
        if isinstance(self.comparison, GrowingComparison) and self.is_counted:
            return self.comparison.count()
        return 0, 0

    def lacks(self, source: int, lake: int) -> int:
        """Return how many rows the lake lacks; less than 0: how many more it has than it may."""
        return max(0, source - lake) if self.is_count else source - lake


def _since(compare: Callable[..., Comparison], known: set[int]) -> Since:
    def comparison(again: Collection[int]) -> Comparison:
        def is_wanted(file: LakeFile) -> bool:
            return file.number in again or not (file.number in known or naming.is_streamed(file.path))

        return compare((), is_wanted=is_wanted)

    return comparison


def _passed_over(report: Report, why: str) -> Report:
    """Return the report of a table that is still to come: it was not found equal."""
    return dataclasses.replace(report, skipped=why, error_code=TableError.exit_code)


def _check_past(url: str, position: int, place: str) -> None:
    """Refuse a server whose WAL ends before what the lake has of it: nobody would ever hear of what came then.

    Args:
        url: Where to ask: the server that is compared.
        position: How far the lake is.
        place: Source and table, for messages.

    Raises:
        SlotLost: It is such a server.
        SourceError: It does not answer.
    """
    with contextlib.closing(conninfo.connect(url)) as connection:
        end = introspect.wal_end(connection)
    if position > end:
        raise SlotLost(
            f"{place}: the lake is at {lsn.render(position)}, and the WAL of the source ends at {lsn.render(end)}:"
            " the source was restored, or another one answers",
            hint="start kuvasz: it says what to do",
        )


def _check_stopped(url: str, slot: str, at: int, place: str) -> None:
    """Refuse a comparison during which a kuvasz began to run: the slot tells no more what it applied.

    Args:
        url: The url of the source.
        slot: The name of its slot.
        at: What was confirmed, or more, when the lake was looked at.
        place: Source and table, for messages.

    Raises:
        SourceError: One did, or nobody knows.
    """
    with contextlib.closing(conninfo.connect(url)) as connection:
        state = slots.describe(connection, slot)
    if state is None or (state.confirmed_flush_lsn or 0) > at:
        raise SourceError(f"{place}: kuvasz was started while it was compared", hint="verify again")


def _position(table: LakeTable, source: Source, spec: SourceTableSpec) -> SourcePosition:
    """Return how far a table was at its last look.

    Raises:
        TableError: It is copied again since.
    """
    position = table.positions.get(source.name_of(spec))
    if position is None:
        message = f"{place_of(source.name, spec.table)}: it is copied again"
        raise TableError(message, hint="verify again when it streams")
    return position


def _mendable(done: _SnapshotRound, table: LakeTable) -> BoolMask:
    """Say which of the unmended keys could be mended."""
    return _is_to_mend(done.certain, done, table)[~_is_among(done.certain.keys, done.mended)]


def _is_to_mend(certain: Difference, done: _SnapshotRound, table: LakeTable) -> BoolMask:
    """Say which keys are anybody's to mend."""
    mask = np.ones(len(certain), np.bool_)
    if table.target.type is TableType.HISTORY:  # which of two open versions is the right one, nobody knows
        mask &= certain.kinds != DifferenceKind.DOUBLED
    if done.has_kept:
        mask &= certain.kinds != DifferenceKind.EXTRA
        if not table.definition.key:  # equal rows, some of which the source has
            mask &= certain.kinds != DifferenceKind.DOUBLED
    return mask


def _unmoved(done: _SnapshotRound, moved: KeyHistory, table: LakeTable) -> Difference:
    """Return what can be mended of keys that did not change since the snapshot."""
    mask = ~moved.touched[find(done.found.keys, done.certain.keys)]
    return done.certain.keep(mask & _is_to_mend(done.certain, done, table))


def _with_faults(done: _SnapshotRound, comparison: Comparison) -> _SnapshotRound:
    """Look at all versions of a history, in the lake alone."""
    assert isinstance(comparison, GrowingComparison)
    keys, kinds = comparison.faults()
    shown = comparison.fault_values(keys.take(slice(0, SHOWN))) if len(keys) else {}
    told = [DifferingKey(kind=Fault(kinds[number]).name.lower(), key=text) for number, text in sorted(shown.items())]
    return dataclasses.replace(done, faults=len(keys), shown=(*done.shown, *told))


def _decide(done: _SnapshotRound, moved: KeyHistory, window: Window, one: _Compared) -> _SnapshotRound:
    """Correct what was found by what changed at the source between its snapshot and what the lake shows."""
    _take(moved, window, one.taken.consistent_point, done.at)
    unknown = moved.unknown
    certain = done.found.keep(~unknown)
    if one.comparison.is_ordered:
        numbers, rows, prints = moved.known()
        certain = certain.corrected((np.cumsum(~unknown) - 1)[numbers], rows, prints)
    else:
        unknown = moved.touched  # whether it was so before, nobody can tell
        certain = done.found.keep(~unknown)
    return dataclasses.replace(done, certain=one.comparison.judged(certain), undecided=unknown)


def _leave_waiting(done: _SnapshotRound, moved: KeyHistory, window: Window, one: _Compared) -> _SnapshotRound:
    """Leave out what a stopped kuvasz has still to apply."""
    _take(moved, window, done.at, one.taken.consistent_point)
    touched = moved.touched
    waiting = int(np.count_nonzero(touched)) or abs(moved.added)
    return dataclasses.replace(done, certain=done.found.keep(~touched), waiting=waiting)


def _take(moved: KeyHistory, window: Window, start: int, end: int) -> None:
    """Add what committed from one LSN on, up to another; what the window has before is passed over."""
    for change in window.read(end):
        _, wanted = split(change, start)
        if wanted is not None:
            moved.add(wanted)
    moved.evaluate()


def _is_among(keys: Keys, some: Keys) -> BoolMask:
    """Return for each of `keys` whether it is one of `some`, which are ascending."""
    mask: BoolMask = find(some, keys) >= 0
    return mask


def key_values(comparison: Comparison, found: Difference) -> dict[tuple[int, int], tuple[str, ...]]:
    """Return the values of the first `SHOWN` keys of each side."""
    values: dict[tuple[int, int], tuple[str, ...]] = {}
    sides: Sequence[tuple[Side, BoolMask]] = (
        ("source", found.kinds != DifferenceKind.EXTRA), ("lake", found.kinds == DifferenceKind.EXTRA)
    )  # fmt: skip
    for side, mask in sides:
        keys = found.keys.take(np.flatnonzero(mask)[:SHOWN])
        if len(keys):
            told = comparison.key_values(keys, side)
            values |= {(int(keys.hi[number]), int(keys.lo[number])): text for number, text in told.items()}
    return values


def _shown(certain: Difference, values: dict[tuple[int, int], tuple[str, ...]]) -> tuple[DifferingKey, ...]:
    shown = []
    for hi, lo, kind in zip(certain.keys.hi.tolist(), certain.keys.lo.tolist(), certain.kinds.tolist(), strict=True):
        if (hi, lo) in values:
            shown.append(DifferingKey(kind=DifferenceKind(kind).name.lower(), key=values[hi, lo]))
        if len(shown) == SHOWN:
            break
    return tuple(shown)


def _report(report: Report, table: LakeTable, rounds: Sequence[_SnapshotRound], *, can_mend: bool) -> Report:
    first, last = rounds[0], rounds[-1]
    counts = {kind: first.certain.count(kind) for kind in DifferenceKind}
    shown = list(first.shown)
    for earlier, done in itertools.pairwise(rounds):
        # Keys that could not be decided before, or were not mended, come again: these are counted already.
        fresh = done.certain.keep(~_is_among(done.certain.keys, earlier.certain.keys))
        for kind in DifferenceKind:
            counts[kind] += fresh.count(kind)
        shown += [entry for entry in done.shown if entry not in shown]
    mended = sum(len(done.mended) for done in rounds)
    missing, extra = (
        counts[DifferenceKind.MISSING] + max(0, first.lacks),
        counts[DifferenceKind.EXTRA] + max(0, -first.lacks),
    )
    report = dataclasses.replace(
        report, compared=first.compared, lsn=lsn.render(first.at), source_rows=first.rows["source"],
        lake_rows=first.rows["lake"], key=first.named, missing=missing, extra=extra,
        changed=counts[DifferenceKind.CHANGED],
        doubled=counts[DifferenceKind.DOUBLED], faults=first.faults, waiting=first.waiting,
        undecided=int(np.count_nonzero(last.undecided)), rejected=first.rejected, mended=mended,
        keys=tuple(shown[:SHOWN]),
    )  # fmt: skip
    left = len(last.unmended) + first.faults if can_mend else report.differences
    why_left = _why_left(table, left, doubled=report.doubled, has_kept=first.has_kept)
    return dataclasses.replace(report, left=left, why_left=why_left)


def _why_left(table: LakeTable, left: int, *, doubled: int, has_kept: bool) -> str:
    """Say what keeps keys from being mended; empty if nothing does."""
    if not left:
        return ""
    if table.definition.is_growing:
        return _KEPT.format(kind=table.target.type, resync=resync_of(table.name))
    if table.target.is_soft:
        return _SOFT.format(resync=resync_of(table.name))
    is_history = table.target.type is TableType.HISTORY
    if has_kept and not (is_history and doubled):
        return _GONE.format(resync=resync_of(table.name))
    return _VERSIONS if is_history and (doubled or left) else ""


__all__ = ["OnProgress", "Verification"]
