"""Rows taken out of one table for good, step by step: each may be done again, so a kill at any moment does no harm.

First the rows die as if they were deleted. Then each file with dead rows is written anew without them. Then nothing
is left that names the files they were in: manifests are written anew, all snapshots but the last are expired, older
metadata files forgotten. Last, whatever lies in the table's folders and is not needed goes, and all that is left is
looked through.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kuvasz import failpoints
from kuvasz.errors import LakeError, place_of
from kuvasz.lake.files.files import Changeset
from kuvasz.lake.table import notes

if TYPE_CHECKING:
    from kuvasz.lake.erasure.journal import Journal
    from kuvasz.lake.erasure.rows import RowsToErase
    from kuvasz.lake.maintenance.maintenance import Maintainer
    from kuvasz.lake.table.table import LakeTable
    from kuvasz.model import UInt32s

#: Entry in the summary of the snapshot in which the rows died: which erasure it was.
_ERASURE: Final = "kuvasz.erasure"

#: Of a full maintenance, each of which may leave what came meanwhile. Nothing comes.
_PASSES: Final = 3

#: What kuvasz and other engines write into a table's folders. Anything else there is left, and named.
_KINDS: Final = (".parquet", ".puffin", ".stats", ".avro", ".orc", ".metadata.json", ".json.gz", "-proof", ".crc")

#: Milliseconds by which a snapshot may be ahead of this machine's clock.
_CLOCKS_MS: Final = 86_400_000


class TableErasure:
    """The erasure of rows from one table, to which nobody commits meanwhile.

    Args:
        table: The table.
        rows: What goes.
        journal: Told how far it is.
        maintainer: Writes files anew.
    """

    def __init__(self, table: LakeTable, rows: RowsToErase, journal: Journal, maintainer: Maintainer) -> None:
        self._table = table
        self._rows = rows
        self._journal = journal
        self._maintainer = maintainer
        self._remains = table.table.remains
        self._told = journal.table(table.name)
        if not self._is_as_left():  # a kuvasz may have run since: all but the first look is done again
            self._told["done"] = self._told["done"][:1]

    def _is_as_left(self) -> bool:
        """Whether all was done with the table, by an earlier call, and nobody has committed to it since."""
        left = self._told.get("left") if "scan" in self._told["done"] else None
        return bool(left) and self._remains.metadata() == left

    @property
    def _steps(self) -> Sequence[tuple[str, Callable[[], None]]]:
        return (
            ("look", self._look),
            ("names", self._drop_names),
            ("rows", self._delete),
            ("files", self._write_anew),
            ("notes", self._forget_sources),
            ("metadata", self._rewrite_metadata),
            ("snapshots", self._expire),
            ("leftovers", self._sweep),
            ("scan", self._scan),
        )

    def run(self) -> None:
        """Do what is not done yet.

        Raises:
            KuvaszError: It could not be done. It may be begun again.
        """
        for name, step in self._steps:
            if name in self._told["done"]:
                continue
            step()
            failpoints.hit("erasing", LakeError)
            self._told["done"].append(name)
            self._journal.save()

    def _look(self) -> None:
        """Note what there is, before anything is changed."""
        self._journal.keep(self._table.name, self._remains.listed())
        self._told |= {
            "uuid": self._table.table.uuid,
            "rows": 0,
            "attempts": 0,
            "snapshots": self._remains.snapshots(),
            "dropped_names": [],
        }

    def _drop_names(self) -> None:
        self._told["dropped_names"] = sorted({*self._told["dropped_names"], *self._remains.names()})
        self._journal.save()
        self._remains.drop_names()

    def _delete(self) -> None:
        table = self._table
        with table.lock:
            table.follow()
            found = self._live()
            self._settle(is_any_left=bool(found))
            if not found:
                return
            self._told["attempts"] += 1
            self._told["pending"] = sum(len(places) for places in found.values())
            self._journal.save()
            changeset = Changeset()
            changeset.summary = {_ERASURE: self._attempt}
            for number, places in found.items():
                changeset.delete(np.full(len(places), number, np.uint32), places)
            failpoints.hit("erasing", LakeError)
            table.commits.make(changeset, {})
            failpoints.hit("erasing", LakeError)
            self._settle(is_any_left=False)

    def _settle(self, *, is_any_left: bool) -> None:
        """Count the rows that were about to be deleted, if they were: an earlier call may have ended in between."""
        pending = self._told.pop("pending", 0)
        if not is_any_left or self._remains.has_summary(_ERASURE, self._attempt):
            self._told["rows"] += pending
        self._journal.save()

    @property
    def _attempt(self) -> str:
        return f"{self._journal.id}-{self._told['attempts']}"

    def _live(self) -> dict[int, UInt32s]:
        """Return file -> positions of the rows that go and are not dead yet."""
        found, files = {}, self._table.index.files
        for entry in list(files):
            if not self._rows.may_be_in(entry):
                continue
            places = self._in_file(entry.path)
            dead = files.dead(entry.number)
            places = places[~np.isin(places, np.fromiter(dead, np.uint32, len(dead)))]
            if len(places):
                found[entry.number] = places
        return found

    def _in_file(self, path: str) -> UInt32s:
        with self._reading(path):
            return self._rows.in_file(self._table, path)

    def _kept(self, path: str) -> tuple[int, int]:
        """Return how many rows of a file stay that name those that go, and how many may be among these."""
        with self._reading(path):
            return self._rows.naming(self._table, path), self._rows.unclear(self._table, path)

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"{place_of(table=self._table.name)}: file {path} cannot be read: {error}"
            raise LakeError(message, hint="check the warehouse, and begin again: it goes on where it was") from error

    def _write_anew(self) -> None:
        """Leave no dead row and no delete file, whatever died: rows that go may have been deleted before."""
        for _ in range(_PASSES):
            self._maintainer.run(self._table, full=True)
            with self._table.lock:
                self._table.follow()
                if not any(entry.all_deletes for entry in self._table.index.files):
                    return
        raise LakeError(
            f"{place_of(table=self._table.name)}: delete files are left",
            hint="let no other engine write to it meanwhile, and begin again: it goes on where it was",
        )

    def _forget_sources(self) -> None:
        table = self._table
        with table.lock:
            # Other machines have indexes, with hashes of keys: they are not to be believed, nor kept in the store.
            table.table.set_properties(notes.seen_set_back())
            for source in self._sources():
                table.forget_position(source, is_gone=True)
                table.table.remove_properties([notes.PUBLISHED_PREFIX + source, notes.SKIPPED_PREFIX + source])

    def _sources(self) -> list[str]:
        """Return the sources and members whose rows all go, as the table's properties name them."""
        self._table.table.refresh()
        names = {name.partition(".")[2].partition(".")[2] for name in self._table.table.properties
                 if name.startswith("kuvasz.")}  # fmt: skip
        found = sorted(name for name in names if name and self._rows.is_of(name))
        self._told["sources"] = sorted({*self._told.get("sources", ()), *found})
        return found

    def _rewrite_metadata(self) -> None:
        anchor = self._table.table.properties.get(notes.ANCHOR_PROPERTY)
        self._remains.rewrite_manifests({} if anchor is None else {notes.ANCHOR_PROPERTY: anchor})

    def _expire(self) -> None:
        self._table.table.snapshots.expire(int(time.time() * 1000) + _CLOCKS_MS, 1)
        self._remains.drop_statistics()
        self._remains.forget_metadata()

    def _sweep(self) -> None:
        # First what is there, then what is needed: what is committed in between is needed.
        listed = self._remains.listed()
        unneeded = sorted(listed.keys() - self._remains.known())
        self._remains.remove([listed[name] for name in unneeded if name.endswith(_KINDS)])

    def _scan(self) -> None:
        """Look through all that is left."""
        table, remains = self._table, self._remains
        with table.lock:
            table.follow()
            found = {entry.path: len(self._in_file(entry.path)) for entry in table.index.files}
            naming, unclear = map(sum, zip((0, 0), *map(self._kept, found), strict=True))
            rows = sum(entry.rows for entry in table.index.files)
        listed = remains.listed()
        snapshots = remains.snapshots()
        before = self._journal.kept(table.name)
        self._told |= {
            "files_removed": len(before - listed.keys()),
            "snapshots_expired": len(set(self._told["snapshots"]) - set(snapshots)),
            "scan": {
                "files": len(found),
                "rows": rows,
                "rows_found": sum(found.values()),
                "rows_naming_it": naming,
                "rows_unclear": unclear,
                "snapshots": len(snapshots),
                "tags_and_branches": remains.names(),
                "entries_of_removed_files": remains.deleted_entries(),
                "unneeded_files": sorted(listed.keys() - remains.known()),
            },
        }
        self._told["is_clean"] = _is_clean(self._told["scan"])
        self._told["left"] = remains.metadata()


def _is_clean(scan: dict[str, Any]) -> bool:
    """Whether a scan found nothing of what it looked for."""
    wanted_none = (
        "rows_found", "rows_naming_it", "rows_unclear", "tags_and_branches", "entries_of_removed_files",
        "unneeded_files",
    )  # fmt: skip
    return scan["snapshots"] <= 1 and not any(scan[what] for what in wanted_none)


__all__ = ["TableErasure"]
