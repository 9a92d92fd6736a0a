"""The data files of one copy: ranges of a source's table, read in parallel on executors.

No snapshot knows the files yet. The keys of their rows wait in files on local disk, so a table of any size needs
little memory here.
"""

from __future__ import annotations

import concurrent.futures
import threading
from typing import TYPE_CHECKING

from kuvasz import failpoints
from kuvasz.errors import LakeError
from kuvasz.lake.copies.read_rows import ReadRows, read_small
from kuvasz.lake.executors import expression_jobs
from kuvasz.lake.executors.refused_rows import by_source, unpacked
from kuvasz.lake.executors.tasks import CopyDone, CopyTask
from kuvasz.lake.files.data_file import DataFile
from kuvasz.lake.files.key_file import KeyFiles
from kuvasz.lake.format import naming

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kuvasz.lake.copies.order import Order
    from kuvasz.modes.shape import Shape
    from kuvasz.ports import CopyRequest

#: Raw text after which a range begins its next data file.
_FILE_BYTES = 256 << 20


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
        #: whether the index takes all files at once; sorting them is then done beside the reading
        self.is_sorted = bool(definition.key) and not definition.is_bag and shape.copied_us is None
        self.keys = KeyFiles(folder=folder, is_sorted=self.is_sorted)
        self.files: list[DataFile] = []
        self.rejected: dict[str, int] = {}  #: source -> rows that were left out, which are written down by then
        self.is_kept = False  #: whether they may be in the table, and are nobody's any more
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(file.rows for file in self.files)

    def read(self, requests: Sequence[CopyRequest], lsn: int, on_progress: Callable[[int, int], None]) -> None:
        """Read all ranges; `on_progress(ranges done, rows)` is called from this thread."""
        is_one = len(requests) == 1  # a fleet's tables are, and to count cores is to ask the JVM
        threads = 1 if is_one else self._order.pipeline.copy_parallelism or self._order.jobs.parallelism
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
        pace = self._order.pace
        pace.wait()
        with self._order.turns.turn(request.server, pace.limits, self._stopped.is_set) as rows_per_second:
            if self._stopped.is_set():
                return 0
            paced = request.at_pace(rows_per_second)
            small = None if self._shape.transform is not None else read_small(paced, self._order.pipeline.chunk_bytes)
            return self._copy_range(small or paced, lsn)

    def _copy_range(self, request: CopyRequest, lsn: int) -> int:
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
        with self._lock:
            self.files += done.files
        if done.rejected is not None:  # whether or not the copy is there in the end: it has read them so
            rejected = unpacked(done.rejected)
            order.keep_rejected(order.table.name, rejected)
            with self._lock:
                for source, rows in by_source(rejected).items():
                    self.rejected[source] = self.rejected.get(source, 0) + rows
        if job.key_files is None:
            for file, keys in zip(done.files, done.keys, strict=True):
                self.keys.write(file.path, keys)
        return sum(file.rows for file in done.files)

    def _run(self, job: CopyTask) -> CopyDone:
        if job.shape.transform is not None:
            return expression_jobs.copy_range(self._order.jobs.session, job)
        if isinstance(job.request, ReadRows):
            return job.copy((data, None) for data in job.request.read(job.chunk_bytes))
        done: CopyDone = self._order.jobs.run(job, [0], [1])[0]
        return done

    def keep(self) -> None:
        """Never remove them: they may be in the table, or be about to."""
        self.is_kept = True

    def remove(self) -> None:
        """Remove them from the store, unless they are to be kept, and read no more."""
        self._stopped.set()
        if self.is_kept:
            return
        self._order.table.definition.remove(file.path for file in self.files)


__all__ = ["CopiedFiles"]
