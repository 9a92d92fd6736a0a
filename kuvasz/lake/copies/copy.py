"""The initial copy of one source table: ranges in parallel on executors, one commit at the end.

Until that commit nothing is visible; a crash leaves data files that no snapshot knows. The keys of the copied rows
wait in files on local disk, so a table of any size needs little memory here.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Sequence

from kuvasz import failpoints
from kuvasz.errors import ForeignChange, InternalError, LakeError
from kuvasz.lake.commit.resolution import Resolution
from kuvasz.lake.copies.order import Order
from kuvasz.lake.copies.recopy import Recopy
from kuvasz.lake.executors import expression_jobs
from kuvasz.lake.executors.tasks import CopyDone, CopyTask
from kuvasz.lake.files.data_file import DataFile, file_io, remove
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.files.key_file import KeyFiles
from kuvasz.lake.format import naming
from kuvasz.model import SourcePosition, TableType
from kuvasz.ports import CopyRequest, Receipt

_log = logging.getLogger(__name__)

#: Attempts at a commit that meets another writer's before the copy fails.
_CONFLICT_ATTEMPTS = 5

#: Raw text after which a range begins its next data file.
_FILE_BYTES = 256 << 20


class CopyJob:
    """One copy. Use once."""

    def __init__(self, order: Order) -> None:
        self._table = order.table
        self._feed = order.feed
        self._shape = order.shape()
        self._jobs = order.jobs
        self._properties = order.properties
        self._folder = order.folder / uuid.uuid4().hex
        self._key_files = KeyFiles(folder=self._folder, is_sorted=False)
        self._pipeline = order.pipeline
        self._turns = order.turns
        self._sid = order.sid
        self._files: list[DataFile] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def run(
        self, requests: Sequence[CopyRequest], position: SourcePosition, on_progress: Callable[[int, int], None]
    ) -> Receipt:
        """Copy all ranges and commit."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._begin(position)
            self._key_files = dataclasses.replace(self._key_files, is_sorted=self._is_sorted)
            self._read(requests, position.lsn, on_progress)
            return self._commit(position)
        except OSError as error:
            self._remove_files()
            message = f"table {self._table.name}: its copy cannot be kept below {self._folder.parent}: {error}"
            raise LakeError(message, hint="make room; it is tried again") from error
        except BaseException:
            self._remove_files()
            raise
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _remove_files(self) -> None:
        self._stopped.set()
        remove(file_io(self._properties, self._table.location), [file.path for file in self._files])

    def _begin(self, position: SourcePosition) -> None:
        """Have a history that has versions of this source go on where the snapshot was taken."""
        table = self._table
        if table.target.type is not TableType.HISTORY:
            return
        with table.lock:
            table.follow()
            has_versions = any(
                table.is_of(entry.path, entry.sid, self._feed.source, self._sid) for entry in table.files
            )
        if has_versions:
            self._shape = dataclasses.replace(self._shape, copied_us=position.taken_us)

    def _read(self, requests: Sequence[CopyRequest], lsn: int, on_progress: Callable[[int, int], None]) -> None:
        threads = self._pipeline.copy_parallelism or self._jobs.parallelism
        rows = 0
        with concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="copy") as pool:
            futures = [pool.submit(self._range, request, lsn) for request in requests]
            try:
                for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
                    rows += future.result()
                    failpoints.hit("copy_range_done", LakeError)
                    on_progress(done, rows)
            except BaseException:
                self._stopped.set()
                for future in futures:
                    future.cancel()
                raise

    def _range(self, request: CopyRequest, lsn: int) -> int:
        with self._turns.turn(request.server, self._stopped.is_set) as rows_per_second:
            if self._stopped.is_set():
                return 0
            return self._copy_range(request.at_pace(rows_per_second), lsn)

    def _copy_range(self, request: CopyRequest, lsn: int) -> int:
        job = CopyTask(
            request=request,
            shape=self._shape,
            bounded=self._table.bounded,
            properties=self._properties,
            path=naming.of_copy(self._table.location, self._feed.source),
            chunk_bytes=self._pipeline.chunk_bytes,
            lsn=lsn,
            file_bytes=_FILE_BYTES,
            layout=self._table.layout,
            key_files=self._key_files if self._jobs.is_local else None,
        )
        done = self._run(job)
        if done.error is not None:
            raise done.error
        with self._lock:
            self._files += done.files
        if job.key_files is None:
            for file, keys in zip(done.files, done.keys, strict=True):
                self._key_files.write(file.path, keys)
        return sum(file.rows for file in done.files)

    def _run(self, job: CopyTask) -> CopyDone:
        if job.shape.transform is not None:
            return expression_jobs.copy_range(self._jobs.session, job)
        done: CopyDone = self._jobs.run(job, [0], [1])[0]
        return done

    @property
    def _is_sorted(self) -> bool:
        """Whether the index takes all files at once; sorting them is then done beside the reading."""
        return bool(self._table.key) and not self._table.is_bag and self._shape.copied_us is None

    def _commit(self, position: SourcePosition) -> Receipt:
        table = self._table
        begin = time.monotonic()
        with table.lock:
            snapshot_id = self._replace_repeatedly(position)
            table.era.accept({self._feed.source: position.lsn})
        return Receipt(
            target=table.name,
            positions={self._feed.source: position},
            rows=sum(file.rows for file in self._files),
            snapshot_id=snapshot_id,
            seconds=time.monotonic() - begin,
        )

    def _replace_repeatedly(self, position: SourcePosition) -> int | None:
        for attempt in range(_CONFLICT_ATTEMPTS):
            changeset = Changeset()
            try:
                return self._replace(changeset, position)
            except BaseException as error:
                self._take_back(changeset, error)
                if not isinstance(error, ForeignChange) or attempt == _CONFLICT_ATTEMPTS - 1:
                    raise
        raise InternalError("unreachable")

    def _replace(self, changeset: Changeset, position: SourcePosition) -> int | None:
        table, source, sid = self._table, self._feed.source, self._sid
        table.follow()
        table.abandon(source)
        numbered = [(table.files.reserve(), file) for file in self._files]
        if self._shape.copied_us is not None:
            again = Recopy(
                table, self._jobs, self._properties, changeset, source=source, sid=sid, us=self._shape.copied_us
            )
            for number, file in numbered:
                again.adopt(number, file, self._key_files.keys(file.path))
            again.finish()
            table.notes.close_gap(changeset, source, position.lsn, self._shape.copied_us)
            return table.commit(changeset, {source: position})
        if source in table.positions or len(table.files):
            table.truncate(source, sid, changeset)
            if changeset.dropped and table.target.type is not TableType.CLONE:
                # What the source holds now is all that is known from here on: a gap within the rows would be worse.
                _log.warning("rows of a source are replaced by a new copy, its earlier ones with them", extra={
                    "event": "copied_over", "table": table.name, "source": source,
                    "files": len(changeset.dropped)})  # fmt: skip
        if self._is_sorted:
            records = (self._key_files.records(file.path) for file in self._files)
            Resolution(table, changeset).adopt_sorted(numbered, records, sid)
        else:
            keys = (self._key_files.keys(file.path) for file in self._files)
            Resolution(table, changeset).adopt(numbered, keys, sid)
        return table.commit(changeset, {source: position})

    def _take_back(self, changeset: Changeset, error: BaseException) -> None:
        """Undo a commit that failed, touching neither other sources' open transactions nor what they have written."""
        changeset.is_outcome_unknown = changeset.sent is not None and isinstance(error, LakeError)
        if changeset.is_outcome_unknown:
            self._files = []  # they may be in the table
        else:
            self._table.discard(changeset, keep=[file.path for file in self._files])
        self._table.undo()
