"""The data files of one copy: ranges of a source's table, read in parallel on executors.

No snapshot knows the files yet. The keys of their rows wait in files on local disk, so a table of any size needs
little memory here.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
import time
from typing import TYPE_CHECKING

from kuvasz import failpoints
from kuvasz.errors import LakeError, SourceError, SourceSlow
from kuvasz.fold.difference import distinct
from kuvasz.fold.keys import Keys
from kuvasz.lake.copies.read_rows import ReadRows, read_small
from kuvasz.lake.copies.resumption import FROM_NOTHING, WrittenFiles
from kuvasz.lake.executors import expression_jobs
from kuvasz.lake.executors.refused_rows import by_source, unpacked
from kuvasz.lake.executors.tasks import CopyDone, CopyTask
from kuvasz.lake.files.key_file import KeyFiles
from kuvasz.lake.format import naming

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kuvasz.lake.copies.order import Order
    from kuvasz.lake.copies.resumption import EarlierFiles
    from kuvasz.lake.files.data_file import DataFile
    from kuvasz.model import UInt32s
    from kuvasz.modes.shape import Shape
    from kuvasz.ports import CopyLedger, CopyRequest

#: Raw text after which a range begins its next data file.
_FILE_BYTES = 256 << 20

#: Of a range that comes slowly: what is held of it, and at which rate it is no more slow.
_SLOW_CHUNK_BYTES = 1 << 20
_FAST_BYTES_PER_S = 4 << 20


class CopiedFiles:
    """The files of one copy. Use once.

    Args:
        order: What is copied.
        shape: What the rows look like.
        folder: For the keys; it is there.
    """

    def __init__(self, order: Order, shape: Shape, folder: Path) -> None:
        self._order = order
        self._shape = shape
        definition = order.table.definition
        # Where the index takes all files at once, sorting their keys is done beside the reading.
        is_sorted = bool(definition.key) and not definition.is_bag and shape.copied_us is None
        self.keys = KeyFiles(folder=folder, is_sorted=is_sorted)
        self.files: list[DataFile] = []
        self.rejected: dict[str, int] = {}  #: source -> rows that were left out, which are written down by then
        self.is_kept = False  #: whether they may be in the table, and are nobody's any more
        self.ledger: CopyLedger | None = None  #: keeps what is finished of it
        self.dead: dict[str, UInt32s] = {}  #: path -> rows of it that do not count
        self._resumed = FROM_NOTHING
        self._again: list[DataFile] = []  #: of `files`, those that have the rows which count instead
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    @property
    def rows(self) -> int:
        """Rows in all files that count."""
        return sum(file.rows for file in self.files) - sum(map(len, self.dead.values()))

    def resume(self, ledger: CopyLedger, resumed: EarlierFiles) -> None:
        """Take what is there already, before anything is read, and note what is finished of the rest.

        Args:
            ledger: Takes the notes.
            resumed: What is there; its keys are.
        """
        self.ledger, self._resumed = ledger, resumed
        for made in resumed.made.values():
            self._add(made)

    def read(self, requests: Sequence[CopyRequest], lsn: int, on_progress: Callable[[int, int], None]) -> None:
        """Read all ranges; `on_progress(ranges done, rows)` is called from this thread."""
        is_one = len(requests) == 1  # a fleet's tables are, and to count cores is to ask the JVM
        threads = 1 if is_one else self._order.pipeline.copy_parallelism or self._order.jobs.parallelism
        done, rows = len(self._resumed.made), self.rows
        with concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="copy") as pool:
            futures = {
                pool.submit(self._range, request, lsn, number): 1
                for number, request in enumerate(requests)
                if number not in self._resumed.made
            }
            futures |= {pool.submit(self._range, request, lsn, None): 0 for request in self._resumed.again}
            try:
                for future in concurrent.futures.as_completed(futures):
                    rows += future.result()
                    done += futures[future]
                    failpoints.hit("copy_range_done", LakeError)
                    on_progress(done, rows)
            except BaseException:
                self._stopped.set()
                for future in futures:
                    future.cancel()
                raise

    def settle(self) -> None:
        """Leave out what does not count: rows of keys that were touched since, and are read anew.

        Raises:
            LakeError: One of these was read twice, as where the source takes texts that differ for equal.
        """
        again = Keys.concat([self.keys.ascending(file.path) for file in self._again])
        if len(distinct(again)) != len(again):
            assert self.ledger is not None
            self.ledger.close()
            message = f"{self._order.feed.place}: rows of one key were read twice when its copy went on"
            raise LakeError(message, hint="it is copied again from the beginning")
        gone = Keys.concat([self._resumed.touched, again])
        gone = gone.take(distinct(gone))
        read_anew = {file.path for file in self._again}
        if not len(gone):
            return
        for file in self.files:
            if file.path not in read_anew and len(rows := self.keys.leave_out(file.path, gone)):
                self.dead[file.path] = rows

    def _range(self, request: CopyRequest, lsn: int, number: int | None) -> int:
        pace = self._order.pace
        pace.wait()
        with self._order.turns.turn(request.server, pace.limits, self._stopped.is_set) as rows_per_second:
            if self._stopped.is_set():
                return 0
            paced = request.at_pace(rows_per_second)
            made = self._copy_range(self._read_small(paced) or paced, lsn)
            self._add(made)
            if number is None:
                with self._lock:
                    self._again += made.files
            elif self.ledger is not None:
                self.ledger.note(number, made.render())
            return sum(file.rows for file in made.files)

    def _read_small(self, request: CopyRequest) -> ReadRows | None:
        """Read a small range now; None if it is to be read as a large one, also because its rows come slowly.

        Many small tables are copied at a time: one of which next to nothing comes goes to where slow ones wait for
        each other alone.
        """
        if self._shape.transform is not None or self._order.pace.is_slow:
            return None
        try:
            return read_small(request.hurried(), self._order.pipeline.chunk_bytes)
        except SourceSlow:
            self._order.pace.note_slow(is_slow=True)
            return None

    def _add(self, made: WrittenFiles) -> None:
        with self._lock:
            self.files += made.files
            for source, rows in made.rejected.items():
                self.rejected[source] = self.rejected.get(source, 0) + rows

    def _copy_range(self, request: CopyRequest, lsn: int) -> WrittenFiles:
        order, definition = self._order, self._order.table.definition
        job = CopyTask(
            request=request,
            shape=self._shape,
            bounded=definition.bounded,
            properties=order.properties,
            path=naming.of_copy(definition.location, order.feed.source),
            chunk_bytes=order.pipeline.chunk_bytes,
            lsn=lsn,
            file_bytes=_FILE_BYTES,
            layout=definition.layout,
            key_files=self.keys if order.jobs.is_local else None,
        )
        done = self._run(job)
        if done.error is not None:
            raise done.error
        counts: dict[str, int] = {}
        if done.rejected is not None:  # whether or not the copy is there in the end: it has read them so
            rejected = unpacked(done.rejected)
            order.keep_rejected(order.table.name, rejected)
            counts = dict(by_source(rejected))
        if job.key_files is None:
            for file, keys in zip(done.files, done.keys, strict=True):
                self.keys.write(file.path, keys)
        return WrittenFiles(files=done.files, rejected=counts)

    def _run(self, job: CopyTask) -> CopyDone:
        if job.shape.transform is not None:
            return expression_jobs.copy_range(self._order.jobs.session, job)
        if isinstance(job.request, ReadRows):
            return job.copy((data, None) for data in job.request.read(job.chunk_bytes))
        pace = self._order.pace
        if not pace.is_slow:
            hurried = dataclasses.replace(job, request=job.request.hurried())
            done: CopyDone = self._order.jobs.run(hurried, [0], [1])[0]
            if not isinstance(done.error, SourceSlow):
                return done
            pace.note_slow(is_slow=True)
        return self._run_here(job)

    def _run_here(self, job: CopyTask) -> CopyDone:
        """Read a range in this thread: a core would do nothing but wait for its rows, as the streams would for it."""
        begin = time.monotonic()
        path = naming.of_copy(self._order.table.definition.location, self._order.feed.source)
        job = dataclasses.replace(job, path=path, chunk_bytes=min(job.chunk_bytes, _SLOW_CHUNK_BYTES))
        done = job.copy((data, None) for data in job.request.read(job.chunk_bytes))
        if job.request.size > (time.monotonic() - begin) * _FAST_BYTES_PER_S:
            self._order.pace.note_slow(is_slow=False)
        return done

    def keep(self) -> None:
        """Never remove them: they may be in the table, or be about to."""
        self.is_kept = True

    def remove(self, error: BaseException) -> None:
        """Remove them from the store, unless they are to be kept or a later attempt takes them up, and read no more.

        Args:
            error: Why the copy ends. Only after what passes by itself comes a later attempt.
        """
        self._stopped.set()
        if self.is_kept:
            return
        files = self.files
        if self.ledger is not None and isinstance(error, SourceError | LakeError):
            files = self._again
        elif self.ledger is not None:
            self.ledger.close()
        self._order.table.definition.remove(file.path for file in files)


__all__ = ["CopiedFiles"]
