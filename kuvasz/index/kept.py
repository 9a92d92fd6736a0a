"""Checkpoints of a table's index in a store, for whoever has the table next and has none of it on its own disk.

A checkpoint is an object of each run and, behind them, a manifest that names them. A run is called by its size and
checksum, so the next checkpoint writes those alone that are new, and a run that somebody has already is not read
again. Behind a manifest all that it does not name is removed, whoever left it. What is not whole is no checkpoint:
the keys are read from the table then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import secrets
import shutil
from typing import TYPE_CHECKING, Any, Final, Protocol

from kuvasz import failpoints
from kuvasz.index import manifest
from kuvasz.index.manifest import DamagedManifestError, Manifest
from kuvasz.index.run import DamagedRunError, Run, file_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

#: Rows below which nobody keeps an index of a table, or looks for one: to read the keys takes no longer.
LEAST_ROWS: Final = 1 << 16

_MANIFEST: Final = ".index"
_RUN: Final = ".run"

#: In the folder of an index: what is on its way here.
_ARRIVING: Final = "arriving"

#: What is wrong with a checkpoint that cannot be used.
Unusable: Final = (OSError, DamagedManifestError, DamagedRunError)


class IndexStore(Protocol):
    """A folder of objects, of one table alone. Calls block; what cannot be done is an `OSError`."""

    @property
    def place(self) -> str:
        """Where it is, for people."""

    def names(self) -> list[str]:
        """Return the names of all objects."""

    def put(self, name: str, *pieces: bytes) -> None:
        """Write an object of pieces."""

    def upload(self, name: str, file: BinaryIO) -> None:
        """Write an object of a file."""

    def download(self, name: str, to: Path) -> None:
        """Make a file of an object."""

    def remove(self, names: Iterable[str]) -> list[str]:
        """Remove objects, and return which are gone."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """The last checkpoint of an index on disk, whose files stay readable though the index goes on without them."""

    manifest: Manifest
    files: Mapping[str, BinaryIO]  #: by the runs' names


class IndexCheckpoints:
    """The checkpoints of one table's index.

    Args:
        store: Where they are.
    """

    def __init__(self, store: IndexStore) -> None:
        self._store = store

    @property
    def place(self) -> str:
        """Where they are, for people."""
        return self._store.place

    def newest(self, folder: Path) -> Manifest | None:
        """Return the manifest of the newest checkpoint; None if there is none.

        Args:
            folder: For what is on its way.

        Raises:
            OSError: The store does not answer.
            DamagedManifestError: It is not what was written.
        """
        found = max((name for name in self._store.names() if name.endswith(_MANIFEST)), default=None)
        if found is None:
            return None
        with _arriving(folder) as arriving:
            self._store.download(found, arriving / found)
            return manifest.parse((arriving / found).read_bytes())

    def bring(self, folder: Path, is_wanted: Callable[[Mapping[str, Any]], bool]) -> Manifest | None:
        """Put the newest checkpoint in the place of an index on disk, which nobody has open, if it is wanted.

        Args:
            folder: The index's.
            is_wanted: Says of the tag of the checkpoint whether it is.

        Returns:
            What was brought; None: nothing.

        Raises:
            OSError: The store does not answer, or there is no room; so for `Unusable`. What was there still is.
        """
        found = self.newest(folder)
        if found is None or not is_wanted(found.tag):
            return None
        there = _runs_of(folder)
        with _arriving(folder) as arriving:
            runs = []
            for number, entry in enumerate(found.runs):
                run = dataclasses.replace(entry, name=f"{number:08x}{_RUN}")
                known = there.get((entry.rows, entry.checksum))
                if known is None:
                    self._store.download(entry.name, arriving / run.name)
                else:
                    shutil.copyfile(folder / known, arriving / run.name)
                Run.open(
                    arriving / run.name, rows=run.rows, extents=run.extents, checksum=run.checksum, verify=True
                ).sync()
                runs.append(run)
            manifest.remove(folder)
            for path in folder.glob(f"*{_RUN}"):
                path.unlink()
            for run in runs:
                (arriving / run.name).rename(folder / run.name)
            manifest.write(folder, dataclasses.replace(found, runs=tuple(runs)))
        return found

    def keep(
        self, checkpoint: CheckpointFiles, order: int, *, is_given_up: Callable[[], bool] = lambda: False
    ) -> int:
        """Keep a checkpoint, in the place of all others.

        Args:
            checkpoint: The checkpoint, whose files no other thread reads.
            order: The number of the checkpoint: of two the greater one is the newer.
            is_given_up: Says whether nobody waits for it any more, and somebody else may have the table.

        Returns:
            How many bytes were written of runs.

        Raises:
            OSError: It is not kept, as far as is known.
        """

        def go_on() -> None:
            if is_given_up():
                raise OSError(errno.ECANCELED, "it took too long", self.place)

        before, runs, size = set(self._store.names()), [], 0
        for entry in checkpoint.manifest.runs:
            go_on()
            name = f"{entry.rows:x}-{entry.checksum}{_RUN}"
            if name not in before:
                self._store.upload(name, checkpoint.files[entry.name])
                size += file_bytes(entry.rows, entry.extents)
            runs.append(dataclasses.replace(entry, name=name))
        failpoints.hit("index_runs_kept", OSError)
        go_on()
        mine = f"{order:016x}-{secrets.token_hex(4)}{_MANIFEST}"
        self._store.put(mine, manifest.rendered(dataclasses.replace(checkpoint.manifest, runs=tuple(runs))))
        failpoints.hit("index_kept", OSError)
        go_on()  # else a run may go that the next one goes on with
        self._store.remove(before - {entry.name for entry in runs})
        return size

    def remove(self) -> int:
        """Remove all of it; return how many objects.

        Raises:
            OSError: One cannot be removed.
        """
        found = self._store.names()
        if left := set(found).difference(self._store.remove(found)):
            raise OSError(errno.EIO, "it is there still", f"{self.place}/{min(left)}")
        return len(found)


def _nothing(_: str) -> None:
    """Return what the store has of an index where nobody keeps any there."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlace:
    """Where the indexes of tables are."""

    folder: Path  #: on this machine's disk, each in a folder of its table's uuid
    kept: Callable[[str], IndexCheckpoints | None] = _nothing  #: what the store has of one, by its table's uuid


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[CheckpointFiles | None]:
    """Open the last checkpoint of an index on disk; None if there is none.

    Args:
        folder: The index's. Nobody makes a checkpoint there until it is opened; from then on anybody may.

    Raises:
        OSError: It cannot be read.
    """
    try:
        found = manifest.read(folder)
    except DamagedManifestError:
        found = None
    with contextlib.ExitStack() as stack:
        if found is None:
            yield None
            return
        files = {entry.name: stack.enter_context((folder / entry.name).open("rb")) for entry in found.runs}
        yield CheckpointFiles(manifest=found, files=files)


@contextlib.contextmanager
def _arriving(folder: Path) -> Iterator[Path]:
    """Yield an empty folder within the one of an index; what is left in it goes."""
    arriving = folder / _ARRIVING
    shutil.rmtree(arriving, ignore_errors=True)
    arriving.mkdir(parents=True)
    try:
        yield arriving
    finally:
        shutil.rmtree(arriving, ignore_errors=True)


def _runs_of(folder: Path) -> dict[tuple[int, str], str]:
    """Return rows and checksum -> name of the runs on disk."""
    try:
        found = manifest.read(folder)
    except DamagedManifestError:
        found = None
    return {} if found is None else {(entry.rows, entry.checksum): entry.name for entry in found.runs}


__all__ = ["LEAST_ROWS", "CheckpointFiles", "IndexCheckpoints", "IndexPlace", "IndexStore", "Unusable", "opened"]
