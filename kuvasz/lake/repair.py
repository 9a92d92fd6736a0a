"""Changing only what differs: after a lost slot in place of a copy, and for `kuvasz verify --fix`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from kuvasz.config.model import PipelineConfig
from kuvasz.errors import ForeignChange, InternalError, LakeError
from kuvasz.fold.difference import Difference, Kind
from kuvasz.fold.keys import Keys
from kuvasz.lake.comparing import Fetched, Reading, pairs
from kuvasz.lake.comparison import Comparison, OnProgress, lake_files
from kuvasz.lake.files import Changeset, FileTable
from kuvasz.lake.jobs import Jobs
from kuvasz.lake.table import LakeTable
from kuvasz.model import Position, Relation
from kuvasz.ports import CopyRequest, Feed, Receipt

#: Attempts at a repair that meets another writer who rewrites the files it compared.
_ATTEMPTS = 3


def wanted_keys(difference: Difference) -> Keys:
    """Return the differing keys that the source has a row of."""
    return difference.keys.take(difference.kinds != Kind.EXTRA)


def is_in(files: FileTable, difference: Difference) -> bool:
    """Whether the files that hold the differing rows are still there."""
    return all(number in files for number in np.unique(difference.files).tolist())


class RepairJob:
    """One repair. Use once."""

    def __init__(
        self,
        table: LakeTable,
        feed: Feed,
        relation: Relation,
        jobs: Jobs,
        properties: Mapping[str, str],
        folder: Path,
        pipeline: PipelineConfig,
    ) -> None:
        self._table = table
        self._feed = feed
        self._sid = feed.sid if table.target.has_sid else None
        self._jobs = jobs
        self._reading = Reading(
            shape=table.shape(feed, relation), properties=properties, chunk_bytes=pipeline.chunk_bytes
        )
        self._folder = folder
        self._parallelism = pipeline.copy_parallelism

    def run(self, requests: Sequence[CopyRequest], position: Position, on_progress: OnProgress) -> Receipt:
        """Compare, and commit what differs."""
        table = self._table
        for attempt in range(_ATTEMPTS):
            with table.lock:
                table.follow()
                table.index  # noqa: B018 (files are known with it)
                table.abandon(self._feed.source)
                files = lake_files(table.files, self._sid, has_sid=table.target.has_sid)
            comparison = Comparison(
                self._jobs, self._reading, requests, files, parallelism=self._parallelism, folder=self._folder,
                on_progress=on_progress,
            )  # fmt: skip
            fetched: list[Fetched] = []
            try:
                difference = comparison.difference()
                if len(difference):
                    fetched = comparison.fetch(wanted_keys(difference), table)
                return self._commit(difference, fetched, position)
            except ForeignChange:
                comparison.discard(fetched)
                if attempt == _ATTEMPTS - 1:
                    raise
            finally:
                comparison.close()
        raise InternalError("unreachable")

    def _commit(self, difference: Difference, fetched: Sequence[Fetched], position: Position) -> Receipt:
        table, source = self._table, self._feed.source
        begin = time.monotonic()
        changeset = Changeset()
        with table.lock:
            try:
                table.follow()
                if not is_in(table.files, difference):
                    message = f"table {table.name}: its files were rewritten while they were compared"
                    raise ForeignChange(message, hint="it is compared again")
                changeset.delete(difference.files, difference.places)
                rows = list(pairs(fetched))
                numbered = [(table.files.reserve(), file) for file, _ in rows]
                table.adopt(numbered, [keys for _, keys in rows], self._sid, changeset)
                snapshot_id = table.commit(changeset, {source: position})
                if snapshot_id is None:
                    table.advance({source: position})
            except BaseException as error:
                changeset.is_outcome_unknown = changeset.sent is not None and isinstance(error, LakeError)
                table.discard(changeset)
                table.undo()
                raise
            table.era.accept({source: position.lsn})
        return Receipt(
            target=table.name, positions={source: position}, rows=len(difference), snapshot_id=snapshot_id,
            seconds=time.monotonic() - begin,
        )  # fmt: skip
