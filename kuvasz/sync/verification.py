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
difference; it is read from that slot without confirming anything.

An update that leaves out a large unchanged value does not say what the row is at q: its key is looked at again with
another snapshot, a few times, and is *undecided* at last.

`--fix` commits the source's rows, as of S, of keys that did not change between S and the position of the very
snapshot of the lake that the commit is made upon; Iceberg refuses the commit if there is a newer one. A running
kuvasz is asked to wait a moment (`kuvasz.lake.turn`), else a busy table would hardly leave a gap.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from kuvasz import lsn
from kuvasz.config.sources import Source, SourceTableSpec
from kuvasz.errors import ForeignChange, KuvaszError, OutcomeUnknown, SchemaError, SlotLost, SourceError, TableError
from kuvasz.fold.difference import Difference, Kind, find
from kuvasz.fold.keys import Keys
from kuvasz.lake.beside import LakeBeside, look, mend
from kuvasz.lake.comparing import Fetched
from kuvasz.lake.comparison import Comparison, Side
from kuvasz.lake.moved import Moved
from kuvasz.lake.repair import is_in, wanted_keys
from kuvasz.lake.table import LakeTable
from kuvasz.model import PgType, Relation, TableType
from kuvasz.source import conninfo, failure, introspect, slots, snapshot
from kuvasz.source.window import Window, split
from kuvasz.sync import keyless
from kuvasz.sync.plan import copy_ranges
from kuvasz.sync.targets import feed_of, narrowed, target_of

BoolMask: TypeAlias = npt.NDArray[np.bool_]

_RANGE_BYTES = 64 << 20
_LOOK_S = 0.2

#: Without a reader for so long, a slot belongs to a kuvasz that is stopped; one that reconnects is back sooner.
_STOPPED_S = 3.0
#: A running kuvasz that confirms nothing new for so long is stuck.
_STUCK_S = 60.0

#: Snapshots taken for keys that could not be decided, or not be mended.
_ROUNDS = 3
#: Attempts at a commit while those of a running kuvasz that had begun come in.
_COMMITS = 10

#: Differing keys that are shown with their values.
SHOWN = 100

#: Source, lake table, what is being done, parts done, parts in all.
OnProgress = Callable[[str, str, str, int, int], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DifferingKey:
    """One key that differs, for people."""

    kind: str  #: missing, extra, changed, doubled
    key: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of one table of one source."""

    source: str
    table: str
    target: str
    is_member: bool = False  #: one of several tables of the source that are one target
    lsn: str = ""  #: of the source, at which the two were compared
    source_rows: int = 0
    lake_rows: int = 0
    key: tuple[str, ...] = ()
    missing: int = 0
    extra: int = 0
    changed: int = 0
    doubled: int = 0
    waiting: int = 0  #: keys whose changes a stopped kuvasz has not applied yet: no differences
    undecided: int = 0
    mended: int = 0
    left: int = 0  #: keys that differ still
    keys: tuple[DifferingKey, ...] = ()  #: some of them
    seconds: float = 0.0
    skipped: str = ""  #: why it was not compared
    error: str = ""
    hint: str | None = None
    error_code: int = 0

    @property
    def differences(self) -> int:
        """How many keys differ."""
        return self.missing + self.extra + self.changed + self.doubled


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """What came of one snapshot."""

    at: int  #: LSN of the source that the lake showed
    found: Difference  #: as read
    certain: Difference  #: what is left when the stream was looked at
    undecided: BoolMask  #: per key of `found`
    rows: dict[str, int] = dataclasses.field(default_factory=dict)
    waiting: int = 0
    mended: Keys = dataclasses.field(default_factory=Keys.empty)
    shown: tuple[DifferingKey, ...] = ()

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
    """

    def __init__(self, source: Source, lake: LakeBeside, *, is_fixing: bool, on_progress: OnProgress) -> None:
        self._source = source
        self._url = source.url.get()
        self._lake = lake
        self._is_fixing = is_fixing
        self._on_progress = on_progress

    def run(self, spec: SourceTableSpec) -> Report:
        """Compare one table; errors are part of the report."""
        begin = time.monotonic()
        report = Report(
            source=self._source.name, table=str(spec.table), target=spec.identifier, is_member=bool(spec.member)
        )
        try:
            report = self._run(spec, report)
        except KuvaszError as error:
            report = dataclasses.replace(report, error=error.message, hint=error.hint, error_code=error.exit_code)
        return dataclasses.replace(report, seconds=round(time.monotonic() - begin, 3))

    def _run(self, spec: SourceTableSpec, report: Report) -> Report:
        if spec.config.type is not TableType.CLONE:
            return dataclasses.replace(report, skipped=f"a table of type {spec.config.type} is not compared")
        if spec.config.filter is not None or spec.config.set is not None or spec.config.mask:
            return dataclasses.replace(report, skipped="a table with `filter`, `set` or `mask` is not compared")
        table = self._lake.table(target_of(spec))
        if table is not None and not table.key:
            return dataclasses.replace(report, skipped="a table without a key is not compared")
        if table is None:
            return dataclasses.replace(report, skipped="the lake has no such table yet")
        look(table)
        if self._source.name_of(spec) not in table.positions:
            return dataclasses.replace(report, skipped="it was not copied yet")
        rounds: list[_Round] = []
        keys: Keys | None = None
        while len(rounds) < _ROUNDS and (keys is None or len(keys)):
            rounds.append(self._round(spec, table, keys))
            keys = self._open(rounds[-1])
        return _report(report, table, rounds, is_fixing=self._is_fixing)

    def _open(self, done: _Round) -> Keys:
        """Return the keys to be looked at again."""
        mask = done.undecided.copy()
        if self._is_fixing:
            mask |= _is_among(done.found.keys, done.unmended)
        return done.found.keys.take(mask)

    def _round(self, spec: SourceTableSpec, table: LakeTable, keys: Keys | None) -> _Round:
        name = self._source.name
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(contextlib.closing(conninfo.connect(self._url)))
            stack.enter_context(failure.translated(f"source {name}", f"compare {spec.table}"))
            self._check_cluster(connection, spec, table)
            taken = stack.enter_context(self._snapshot(spec))
            confirmed = self._aligned(connection, spec, taken.consistent_point)
            look(table)
            # What is confirmed says nothing of a table of which changes are parked.
            if table.notes.parked(self._source.name_of(spec)) is not None:
                raise TableError(
                    f"{self._place(spec)}: changes wait in the state folder since it was stopped or paused: how far"
                    " the lake is cannot be told",
                    hint="have kuvasz apply them first: kuvasz resume, or retry",
                )
            at = max(table.positions[self._source.name_of(spec)].lsn, confirmed)
            relation, requests = self._requests(spec, taken)
            comparison = self._lake.comparison(
                table, feed_of(self._source, spec), relation, requests, self._progress(spec)
            )
            stack.callback(comparison.close)
            found = comparison.difference() if keys is None else comparison.difference_of(keys)
            done = _Round(at=at, found=found, certain=found, undecided=np.zeros(len(found), np.bool_),
                          rows=comparison.rows)  # fmt: skip
            if len(found) == 0:
                return done
            # All that needs the snapshot comes before the stream, which ends it.
            values = key_values(comparison, found)
            fetched: list[Fetched] = []
            if self._is_fixing:
                fetched = comparison.fetch(wanted_keys(found), table)
                stack.callback(lambda: comparison.discard(fetched))
            moved = Moved(found.keys, lambda relation: table.columns.shape(feed_of(self._source, spec), relation))
            window = self._window(stack, spec, taken, at)
            if at >= taken.consistent_point:
                done = _decide(done, moved, window, taken.consistent_point)
            else:
                done = _leave_waiting(done, moved, window, taken.consistent_point)
            if self._is_fixing:
                is_followed = at >= taken.consistent_point
                done = self._mend(spec, table, done, moved, window if is_followed else None, fetched)
            return dataclasses.replace(done, shown=_shown(done.certain, values))

    def _check_cluster(self, connection: Any, spec: SourceTableSpec, table: LakeTable) -> None:  # noqa: ANN401
        known = table.positions[self._source.name_of(spec)].system_id
        now = str(introspect.server(connection).system_identifier)
        if known and known != now:
            raise SlotLost(
                f"{self._place(spec)}: cluster {now} answers, but the lake holds rows of cluster {known}",
                hint="check the url; if the cluster was replaced, copy the source again (kuvasz resync)",
            )

    def _place(self, spec: SourceTableSpec) -> str:
        return f"source {self._source.name}, table {spec.table}"

    def _snapshot(self, spec: SourceTableSpec) -> slots.ExportedSnapshot:
        name = f"{self._source.object_name[:48]}_verify_{random.getrandbits(24):06x}"

        def waiting(blockers: tuple[slots.Blocker, ...]) -> None:
            told = ", ".join(blocker.describe() for blocker in blockers) or "running transactions"
            self._on_progress(self._source.name, spec.identifier, f"wait for {told}", 0, 0)

        return slots.create(conninfo.replication_conninfo(self._url), name, temporary=True, on_waiting=waiting)

    def _aligned(self, connection: Any, spec: SourceTableSpec, point: int) -> int:  # noqa: ANN401 (psycopg's)
        """Wait until the slot is confirmed up to an LSN or nobody reads it; return what is confirmed.

        Raises:
            SlotLost: There is no slot.
            SourceError: Its reader does not get on.
        """
        slot = self._source.object_name
        last, moved_at, seen_at = -1, time.monotonic(), time.monotonic()
        while True:
            state = slots.describe(connection, slot)
            if state is None or state.confirmed_flush_lsn is None or state.why_lost:
                message = f"{self._place(spec)}: slot {slot} is gone: how far the lake is cannot be told"
                raise SlotLost(message, hint="start kuvasz: it says what to do")
            confirmed, now = state.confirmed_flush_lsn, time.monotonic()
            if state.active_pid is not None:
                seen_at = now
            if confirmed > last:
                last, moved_at = confirmed, now
            if confirmed >= point or now - seen_at >= _STOPPED_S:
                return confirmed
            if now - moved_at >= _STUCK_S:
                raise SourceError(
                    f"{self._place(spec)}: kuvasz has confirmed {lsn.render(confirmed)} and got no further in"
                    f" {_STUCK_S:.0f} s; needed is {lsn.render(point)}",
                    hint="`kuvasz status` says which table holds it: mend that, or stop kuvasz and verify then",
                )
            self._on_progress(self._source.name, spec.identifier, "wait for the lake", 0, 0)
            time.sleep(_LOOK_S)

    def _requests(
        self, spec: SourceTableSpec, taken: slots.ExportedSnapshot
    ) -> tuple[Relation, Sequence[snapshot.CopyRange]]:
        plain = taken.pinned(conninfo.conninfo(self._url))
        with snapshot.session(plain, taken.snapshot_name) as connection:
            found = introspect.load_relation(connection, spec.table)
        if found is None:
            raise SchemaError(f"{self._place(spec)}: there is no such table", hint="create it, or change the map")
        seen = found if found.relation.key else keyless.with_key(found, spec.config)
        if not seen.relation.key:
            raise SchemaError(f"{self._place(spec)}: {found.why_no_key}", hint=found.mend or None)
        seen = dataclasses.replace(seen, relation=narrowed(spec, seen.relation))
        ranges = copy_ranges(seen, conninfo=plain, snapshot_name=taken.snapshot_name, target_bytes=_RANGE_BYTES)
        return seen.relation, ranges

    def _window(
        self, stack: contextlib.ExitStack, spec: SourceTableSpec, taken: slots.ExportedSnapshot, at: int
    ) -> Window:
        """Return the stream from the snapshot on, or, if the lake lies before it, from what is confirmed on."""
        name = self._source.object_name
        if at >= taken.consistent_point:
            return taken.window(name, spec.table, self._types, self._source.name)
        pgconn = conninfo.connect_pq(conninfo.replication_conninfo(self._url), f"read slot {name}")
        stack.callback(pgconn.finish)
        return Window(pgconn, name, name, spec.table, self._types, self._source.name)

    def _types(self, oids: list[int]) -> dict[int, PgType]:
        with contextlib.closing(conninfo.connect(self._url)) as connection:
            return introspect.load_types(connection, oids)

    def _progress(self, spec: SourceTableSpec) -> Callable[[str, int, int], None]:
        return lambda phase, done, total: self._on_progress(self._source.name, spec.identifier, phase, done, total)

    def _mend(
        self,
        spec: SourceTableSpec,
        table: LakeTable,
        done: _Round,
        moved: Moved,
        window: Window | None,
        fetched: list[Fetched],
    ) -> _Round:
        """Commit the source's rows of the differing keys that have not changed since its snapshot.

        Args:
            spec: The table.
            table: Its lake table, as looked at.
            done: The round so far.
            moved: What changed since the snapshot, as far as the window was read.
            window: What changes further; None if nobody else commits.
            fetched: The rows; emptied once a snapshot of the lake knows them.
        """
        if window is None:
            left = done.certain.keep(~moved.touched[find(done.found.keys, done.certain.keys)])
            return self._commit(spec, table, done, left, fetched)
        # Commits that are under way already still come in; after these, nobody's does until ours.
        table.turn.ask()
        try:
            at = done.at
            for _ in range(_COMMITS):
                look(table)
                if table.positions[self._source.name_of(spec)].lsn > at:
                    at = table.positions[self._source.name_of(spec)].lsn
                    for change in window.read(at):
                        moved.take(change)
                left = done.certain.keep(~moved.touched[find(done.found.keys, done.certain.keys)])
                with contextlib.suppress(ForeignChange):
                    return self._commit(spec, table, done, left, fetched)
            return done
        finally:
            table.turn.stop_asking()

    def _commit(
        self, spec: SourceTableSpec, table: LakeTable, done: _Round, left: Difference, fetched: list[Fetched]
    ) -> _Round:
        if len(left) == 0 or not is_in(table.files, left):
            return done
        try:
            mend(table, feed_of(self._source, spec), left, fetched)
        except OutcomeUnknown:
            fetched.clear()  # they may be in the table
            raise
        fetched.clear()
        return dataclasses.replace(done, mended=left.keys)


def _decide(done: _Round, moved: Moved, window: Window, start: int) -> _Round:
    """Correct what was found by what changed at the source between its snapshot and what the lake shows."""
    _take(moved, window, start, done.at)
    unknown = moved.unknown
    numbers, rows, prints = moved.known()
    place = np.cumsum(~unknown) - 1
    certain = done.found.keep(~unknown).corrected(place[numbers], rows, prints)
    return dataclasses.replace(done, certain=certain, undecided=unknown)


def _leave_waiting(done: _Round, moved: Moved, window: Window, point: int) -> _Round:
    """Leave out what a stopped kuvasz has still to apply."""
    _take(moved, window, done.at, point)
    touched = moved.touched
    return dataclasses.replace(done, certain=done.found.keep(~touched), waiting=int(np.count_nonzero(touched)))


def _take(moved: Moved, window: Window, start: int, end: int) -> None:
    for change in window.read(end):
        _, wanted = split(change, start)
        if wanted is not None:
            moved.take(wanted)


def _is_among(keys: Keys, some: Keys) -> BoolMask:
    """Return for each of `keys` whether it is one of `some`, which are ascending."""
    mask: BoolMask = find(some, keys) >= 0
    return mask


def key_values(comparison: Comparison, found: Difference) -> dict[tuple[int, int], tuple[str, ...]]:
    """Return the values of the first `SHOWN` keys of each side."""
    values: dict[tuple[int, int], tuple[str, ...]] = {}
    sides: Sequence[tuple[Side, BoolMask]] = (
        ("source", found.kinds != Kind.EXTRA), ("lake", found.kinds == Kind.EXTRA)
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
            shown.append(DifferingKey(kind=Kind(kind).name.lower(), key=values[hi, lo]))
        if len(shown) == SHOWN:
            break
    return tuple(shown)


def _report(report: Report, table: LakeTable, rounds: Sequence[_Round], *, is_fixing: bool) -> Report:
    first, last = rounds[0], rounds[-1]
    counts = {kind: first.certain.count(kind) for kind in Kind}
    shown = list(first.shown)
    for earlier, done in itertools.pairwise(rounds):
        # Keys that could not be decided before, or were not mended, come again: these are counted already.
        fresh = done.certain.keep(~_is_among(done.certain.keys, earlier.certain.keys))
        for kind in Kind:
            counts[kind] += fresh.count(kind)
        shown += [entry for entry in done.shown if entry not in shown]
    mended = sum(len(done.mended) for done in rounds)
    found = sum(counts.values())
    return dataclasses.replace(
        report, lsn=lsn.render(first.at), source_rows=first.rows["source"], lake_rows=first.rows["lake"],
        key=table.key, missing=counts[Kind.MISSING], extra=counts[Kind.EXTRA], changed=counts[Kind.CHANGED],
        doubled=counts[Kind.DOUBLED], waiting=first.waiting, undecided=int(np.count_nonzero(last.undecided)),
        mended=mended, left=len(last.unmended) if is_fixing else found, keys=tuple(shown[:SHOWN]),
    )  # fmt: skip


__all__ = ["SHOWN", "DifferingKey", "Report", "Verification"]
