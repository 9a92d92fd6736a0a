"""Keeps the tables of a lake in shape beside the stream: compaction, expiry of snapshots, removal of orphans.

One thread looks at every table in turn, once per `maintenance.interval`, and between these looks at those that many
files came to, for what is small. What it finds worth writing anew is written by Spark jobs of one task each, at most
as many side by side as there are cores but one, in a scheduler pool of their own, so that the stream's jobs always
find a core. What is due is said by `kuvasz.lake.maintenance.compaction_policy`, how files are exchanged under a
stream by `kuvasz.lake.maintenance.replace_files`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kuvasz.config.model import MaintenanceConfig, RowOrder
from kuvasz.config.names import CLEAN_BRANCH
from kuvasz.errors import InternalError, KuvaszError, LakeError, place_of
from kuvasz.events import Event, EventLimit, EventLog
from kuvasz.lake.definition.definition import Definition
from kuvasz.lake.executors.jobs import Jobs
from kuvasz.lake.executors.tasks import ReadKeys
from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.jvm.catalog import Catalog
from kuvasz.lake.maintenance.compaction_policy import FileGroup, Policy, batches, one_pass
from kuvasz.lake.maintenance.orphans import Busy, Orphans, held
from kuvasz.lake.maintenance.replace_files import Outcome, Rewrite, Swapped, facts, read_ahead
from kuvasz.lake.table.table import LakeTable
from kuvasz.ports import Upkeep
from kuvasz.state.copies import ledger_file

_log = EventLog(__name__)

#: Passes of a full maintenance, as long as the stream leaves deletes behind.
_FULL_PASSES = 3

#: Expiry waits until the oldest snapshot is this many times as old as it may be: it reads the manifests of all
#: that are left, so many go at once.
_OVERDUE = 1.2

#: For each second in which small files were merged, so many others pass: the stream has most of the machine.
_REST = 3.0

#: Seconds a stop waits for what is being committed.
_STOP_S = 10.0


class Maintainer:
    """Maintenance of one lake.

    Args:
        config: When to do what.
        catalog: Where the tables are.
        jobs: Runs what is written anew.
        tables: Gives the tables there are.
        keys_of: Gives what hashes a table's keys, None for a table without an index.
        state: The state folder: when orphans were looked for, and what is finished of copies.
    """

    def __init__(
        self,
        config: MaintenanceConfig,
        catalog: Catalog,
        jobs: Jobs,
        tables: Callable[[], Sequence[LakeTable]],
        keys_of: Callable[[Definition], ReadKeys | None],
        state: Path,
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._jobs = jobs
        self._tables = tables
        self._keys_of = keys_of
        parts = functools.partial(ledger_file.parts_of, state)
        self._orphans = Orphans(catalog, config.orphan_age, state / "orphans.json", parts)
        self._stop = threading.Event()
        self._turn = threading.Lock()
        self._seen: dict[str, _Seen] = {}
        self._thread = threading.Thread(target=self._loop, name="maintenance", daemon=True)
        slots = max(1, jobs.parallelism - 1)
        self._pool = concurrent.futures.ThreadPoolExecutor(
            slots, thread_name_prefix="compaction", initializer=jobs.go_background
        )

    def start(self) -> None:
        """Begin, unless maintenance is off."""
        if self._config.enabled:
            self._thread.start()

    def stop(self) -> None:
        """End soon: what Spark is writing is given up, what is being committed is finished."""
        self._stop.set()
        self._jobs.cancel_background()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def upkeep(self) -> Mapping[str, Upkeep]:
        """Return what is known of each table that was looked at."""
        return {name: seen.upkeep for name, seen in list(self._seen.items()) if seen.upkeep is not None}

    def run(
        self, table: LakeTable, *, full: bool, refuse: Callable[[], None] = lambda: None
    ) -> Upkeep:  # fmt: skip
        """Look at a table now, whatever it costs.

        Args:
            table: The table.
            full: See `kuvasz.ports.Maintenance.run`.
            refuse: Called when it is its turn; whatever it raises ends it.

        Raises:
            KuvaszError: It could not be done.
        """
        with self._turn:
            refuse()
            seen = self._seen.setdefault(table.name, _Seen())
            passes = _FULL_PASSES if full else 1
            try:
                while True:
                    passes -= 1
                    self._compact(table, seen, full=full)
                    self._expire(table, seen, is_asked=True)
                    upkeep = self._note(table, seen)
                    if not passes or not upkeep.delete_files:
                        break
                self._orphans.visit(table)
            except BaseException:
                seen.forget()
                raise
            return upkeep

    @contextlib.contextmanager
    def without(self, target: str) -> Iterator[None]:
        """Look at no table while the body runs, in which one goes; what is being done is done before."""
        with self._turn:
            yield
            self._seen.pop(target, None)

    # The thread

    def _loop(self) -> None:
        look_at, wait_s = time.monotonic() + self._config.interval, 0.0
        while not self._stop.wait(max(wait_s, min(self._config.merge_interval, self._config.interval))):
            begin = time.monotonic()
            if begin >= look_at:
                self.look()
                look_at, wait_s = time.monotonic() + self._config.interval, 0.0
            else:
                self.merge_small()
                wait_s = min(_REST * (time.monotonic() - begin), look_at - begin)

    def look(self) -> None:
        """Look at every table once, and do what is due."""
        for table in self._tables():
            if self._stop.is_set():
                return
            if self._of(table).enabled:
                self._visit(table)

    def merge_small(self) -> None:
        """Merge the small files of the tables that so many came to since they were looked at last."""
        for table in self._tables():
            seen = self._seen.setdefault(table.name, _Seen())
            if self._stop.is_set():
                return
            config = self._of(table)
            is_due = table.commits.changed_files - seen.files >= config.min_files
            if config.enabled and is_due and seen.error is None:
                self._visit(table, only_small=True)

    def _of(self, table: LakeTable) -> MaintenanceConfig:
        """Return what the map says of a table: of all, or otherwise for this one.

        Whether any is looked at by itself is another question, which `start` asks.
        """
        return self._config.model_copy(update={"enabled": True, **table.target.maintenance})

    def _visit(self, table: LakeTable, *, only_small: bool = False) -> None:
        """Do what is due. Nothing that fails here may stop anything else."""
        with self._turn:
            if not any(one is table for one in self._tables()):
                return  # another process has it by now
            seen = self._seen.setdefault(table.name, _Seen())
            seen.files = table.commits.changed_files
            try:
                if table.era.error is None:
                    self._compact(table, seen, full=False, only_small=only_small)
                if not only_small:
                    self._expire(table, seen, is_asked=False)
                    self._orphans.visit(table)
                seen.error = None
                seen.failing.over()
            except KuvaszError as error:
                self._failed(table, seen, error)
            except Exception as error:  # noqa: BLE001 (who only tidies up must stop nothing)
                _log.tell(Event.BUG_IN_MAINTENANCE, table=table.name)
                self._failed(table, seen, InternalError(f"{place_of(table=table.name)}: {error!r}"))
            try:
                self._note(table, seen)
            except Busy:
                pass
            except Exception:  # noqa: BLE001 (as above: the thread looks at all others, and again)
                _log.tell(Event.BUG_IN_MAINTENANCE, table=table.name)

    def _failed(self, table: LakeTable, seen: _Seen, error: KuvaszError) -> None:
        seen.forget()
        if self._stop.is_set():
            return
        is_other = seen.error not in {None, error.message}
        seen.error = error.message
        if seen.failing.is_news() or is_other:
            _log.tell(Event.MAINTENANCE_FAILED, table=table.name, error=error.message)

    # Compaction

    def _compact(self, table: LakeTable, seen: _Seen, *, full: bool, only_small: bool = False) -> None:
        if not full and table.index.snapshot_id == seen.planned and table.index.snapshot_id is not None:
            return
        policy = _policy(self._of(table))
        with held(table):
            table.follow()
            entries = tuple(table.index.files)
            snapshot_id = table.index.snapshot_id
            seen.planned = None if only_small else snapshot_id
        files = facts(table, entries, policy.target_bytes)
        groups = policy.plan(files, full=full, only_small=only_small)
        alone = [[group] for group in groups]
        due = alone if table.definition.keeps_order else batches(groups, policy.target_bytes)
        chosen = due if full else one_pass(due, policy.target_bytes)
        if len(chosen) < len(due):
            seen.planned = None
        futures = [self._pool.submit(self._rewrite, table, seen, batch) for batch in chosen]
        concurrent.futures.wait(futures)
        rewrites = [future.result() for future in futures]
        if full and self._config.clean_branch and snapshot_id is not None:
            self._name_clean(table, snapshot_id, rewrites)

    def _name_clean(self, table: LakeTable, snapshot_id: int, rewrites: Sequence[Outcome | None]) -> None:
        """Let the branch name what was planned, with the new files: no row of them was dead then.

        So a stream that goes on hinders nobody: the table itself has the deletes that came meanwhile, the branch not.
        """
        parts = [rewrite for rewrite in rewrites if rewrite is not None]
        handle = self._catalog.load(table.name)
        if handle is None or len(parts) < len(rewrites) or handle.branch.name == CLEAN_BRANCH:
            _log.tell(Event.CLEAN_BRANCH_LEFT, table=table.name)
            return
        handle.snapshots.set_branch(CLEAN_BRANCH, TableCommit(
            snapshot_id=snapshot_id, properties={}, summary={}, is_rewrite=True,
            removed_files=[text for data, _, _ in parts for text in data],
            removed_deletes=[text for _, deletes, _ in parts for text in deletes],
            data_files=[text for _, _, files in parts for text in files],
        ))  # fmt: skip
        _log.tell(Event.CLEAN_BRANCH, table=table.name, branch=CLEAN_BRANCH)

    def _rewrite(self, table: LakeTable, seen: _Seen, groups: Iterable[FileGroup]) -> Outcome | None:
        """Exchange the files of some groups; None if what was written is not, or not wholly, in the table."""
        if self._stop.is_set():
            return None
        begin = time.monotonic()
        groups = list(groups)
        try:
            read_ahead(table, groups)
        except OSError as error:
            message = f"{place_of(table=table.name)}: its delete files cannot be read: {error}"
            raise LakeError(message, hint="check the warehouse; it is tried again") from error
        with held(table):
            # Where a key has several rows the index follows them one by one, and their order may tell their age.
            is_plain = table.definition.has_unique_keys
            keys = self._keys_of(table.definition) if is_plain else None
            rewrite = Rewrite.plan(table, groups, keys, self._sort_by(table) if is_plain else ())
        try:
            rewrite.write(self._jobs, 1)
        except BaseException:
            rewrite.abandon()
            raise
        written = time.monotonic()
        swapped, commit_s = self._swap(table, rewrite)
        if swapped is None:
            return None
        seen.rewrites += 1
        seen.last_at = time.time()
        _log.tell(
            Event.COMPACTED,
            table=table.name,
            files_before=swapped.files_before,
            files_after=swapped.files_after,
            rows=swapped.rows,
            bytes=swapped.bytes,
            carried=swapped.carried,
            seconds=round(written - begin, 3),
            commit_seconds=round(commit_s, 3),
            rewritten_bytes=table.commits.rewritten_bytes,
            changed_bytes=table.commits.changed_bytes,
        )
        return rewrite.outcome if swapped.is_whole else None

    def _swap(self, table: LakeTable, rewrite: Rewrite) -> tuple[Swapped | None, float]:
        """TableCommit; returns also the seconds that the stream may have waited for it."""
        try:
            with held(table):
                begin = time.monotonic()
                return rewrite.commit(_summary), time.monotonic() - begin
        except Busy:
            rewrite.abandon()
            raise

    def _sort_by(self, table: LakeTable) -> tuple[str, ...]:
        config = self._of(table)
        return table.definition.bounded if config.order is RowOrder.KEY else ()

    # Snapshots

    def _expire(self, table: LakeTable, seen: _Seen, *, is_asked: bool) -> None:
        """Expire old snapshots, through a handle of our own: removing their files must keep nobody waiting.

        Iceberg repeats the commit of whoever comes second, so neither side fails.
        """
        now, config = time.time(), self._of(table)
        if table.index.snapshot_id != seen.expired:
            seen.expired, seen.changed_at = table.index.snapshot_id, now
        elif now < seen.overdue_at and not is_asked:
            return  # nothing came, and nothing is too old: loading a table costs 50 ms
        elif now - seen.changed_at > config.snapshot_age * _OVERDUE + 2 * self._config.interval:
            return  # nothing is left that could grow too old
        handle = self._catalog.load(table.name)
        if handle is None:
            return
        oldest_ms = handle.snapshots.oldest_ms
        if oldest_ms is not None and (now - oldest_ms / 1000 > config.snapshot_age * _OVERDUE or is_asked):
            handle.branch.note_lineage()
            handle.snapshots.expire(int((now - config.snapshot_age) * 1000), config.snapshots_kept)
            oldest_ms = handle.snapshots.oldest_ms
        seen.overdue_at = math.inf if oldest_ms is None else oldest_ms / 1000 + config.snapshot_age * _OVERDUE
        seen.snapshots = handle.snapshots.count

    # What is shown

    def _note(self, table: LakeTable, seen: _Seen) -> Upkeep:
        with held(table):
            entries = tuple(table.index.files)
        upkeep = Upkeep(
            target=table.name,
            files=len(entries),
            bytes=sum(entry.size for entry in entries),
            rows=sum(entry.rows for entry in entries),
            dead_rows=sum(entry.dead_rows for entry in entries),
            delete_files=sum(entry.delete is not None for entry in entries),
            snapshots=seen.snapshots,
            rewrites=seen.rewrites,
            last_at=seen.last_at,
            next_at=time.time() + self._config.interval if self._thread.is_alive() else None,
            changed_bytes=table.commits.changed_bytes,
            rewritten_bytes=table.commits.rewritten_bytes,
            error=seen.error,
        )
        seen.upkeep = upkeep
        return upkeep


def _policy(config: MaintenanceConfig) -> Policy:
    return Policy(
        target_bytes=config.target_file_size,
        min_files=config.min_files,
        max_dead_share=config.max_dead_percent / 100,
    )


@dataclasses.dataclass(slots=True, kw_only=True)
class _Seen:
    """What is remembered of a table from one pass to the next."""

    planned: int | None = None  #: snapshot at the last plan of everything
    files: int = 0  #: that had come when the table was looked at last
    expired: int | None = None  #: snapshot at the last expiry
    changed_at: float = 0.0  #: unix seconds at which that snapshot was first seen
    overdue_at: float = 0.0  #: unix seconds at which the oldest snapshot will have been kept too long
    snapshots: int | None = None
    rewrites: int = 0
    last_at: float | None = None  #: unix seconds
    error: str | None = None
    failing: EventLimit = dataclasses.field(default_factory=EventLimit)  #: each look tries again
    upkeep: Upkeep | None = None

    def forget(self) -> None:
        """Have the next look do all that is due, also where nothing comes meanwhile: something of it failed."""
        self.planned = self.expired = None


def _summary(swapped: Swapped) -> dict[str, str]:
    return {
        "kuvasz.rewritten-files": str(swapped.files_before),
        "kuvasz.rewritten-rows": str(swapped.rows),
        "kuvasz.rewritten-bytes": str(swapped.bytes),
        "kuvasz.carried-deletes": str(swapped.carried),
    }
