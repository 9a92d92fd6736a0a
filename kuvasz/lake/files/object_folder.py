"""A folder of objects in a lake's store, or of files where the warehouse is a folder: written once, read in ranges.

Without a JVM, and wherever the lake's own files go. What reaches a store is loaded for a store alone: it takes memory
that a process which reads sources needs for nothing else.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from kuvasz import private_folder

if TYPE_CHECKING:
    from kuvasz.config.model import Config
    from kuvasz.index.kept import IndexCheckpoints
    from kuvasz.lake.files.folder_files import Files

_FILE: Final = "file://"
_TEMPORARY: Final = ".part"

#: Bytes of a file that are in memory at a time.
_PIECE: Final = 4 << 20

#: A removal is a round trip; a store's client has some 25 connections.
_AT_ONCE: Final = 24


class ObjectFolder:
    """The folder; see `kuvasz.staging.ports.ObjectStore`.

    Args:
        location: Where it is, with its scheme.
        properties: The properties of the FileIO, as PyIceberg takes them.
    """

    def __init__(self, location: str, properties: Mapping[str, str]) -> None:
        self._location = location.rstrip("/")
        self._properties = properties
        #: A folder here: what is written has to survive the loss of power.
        self._path = Path(location.removeprefix(_FILE)) if location.startswith(_FILE) else None

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return self._location.removeprefix(_FILE)

    @property
    def _io(self) -> Files:
        from kuvasz.lake.files.file_io import file_io

        return file_io(self._properties, self._location)

    def put(self, name: str, *pieces: bytes) -> None:
        """See `ObjectStore.put`."""
        self._put(name, pieces)

    def upload(self, name: str, file: BinaryIO) -> None:
        """Write an object of what a file has, a piece of it in memory at a time; see `put`."""
        self._put(name, iter(lambda: file.read(_PIECE), b""))

    def _put(self, name: str, pieces: Iterable[bytes]) -> None:
        if self._path is not None:
            _write(self._path, name, pieces)
            return
        try:
            self._send(name, pieces)
        except OSError:
            raise
        except Exception as error:  # a store's client has errors of its own
            raise OSError(f"{self.place}/{name} cannot be written: {error}") from error
        _give_back()  # when the stream is gone, which had it

    def _send(self, name: str, pieces: Iterable[bytes]) -> None:
        with self._io.new_output(f"{self._location}/{name}").create(overwrite=True) as stream:
            for piece in pieces:
                stream.write(piece)

    def get(self, name: str, at: int, size: int) -> bytes:
        """See `ObjectStore.get`."""
        if self._path is not None:
            with (self._path / name).open("rb") as file:
                file.seek(at)
                return file.read(size)
        try:
            with self._io.new_input(f"{self._location}/{name}").open() as stream:
                stream.seek(at)
                return bytes(stream.read(size))
        except OSError:
            raise
        except Exception as error:  # a store's client has errors of its own
            raise OSError(f"{self.place}/{name} cannot be read: {error}") from error

    def download(self, name: str, to: Path) -> None:
        """Make a file of what an object has, a piece of it in memory at a time.

        Args:
            name: The name of the object.
            to: The file.

        Raises:
            OSError: It cannot be read or written; so for FileNotFoundError.
        """
        if self._path is not None:
            shutil.copyfile(self._path / name, to)
            return
        try:
            with self._io.new_input(f"{self._location}/{name}").open() as stream, to.open("wb") as file:
                while piece := stream.read(_PIECE):
                    file.write(piece)
        except OSError:
            raise
        except Exception as error:  # a store's client has errors of its own
            raise OSError(f"{self.place}/{name} cannot be read: {error}") from error

    def remove(self, names: Iterable[str]) -> list[str]:
        """See `ObjectStore.remove`."""
        wanted = list(names)
        if not wanted:
            return []
        with ThreadPoolExecutor(min(_AT_ONCE, len(wanted)), "unstage") as pool:
            gone = list(pool.map(self._is_removed, wanted))
        return [name for name, is_gone in zip(wanted, gone, strict=True) if is_gone]

    def _is_removed(self, name: str) -> bool:
        try:
            if self._path is not None:
                (self._path / name).unlink()
                return True
            self._io.delete(f"{self._location}/{name}")
        except FileNotFoundError:
            return True
        except Exception:  # noqa: BLE001 (a store's client has errors of its own; it is tried again)
            return False
        return True

    def names(self) -> list[str]:
        """See `ObjectStore.names`; a store that cannot list has none."""
        if self._path is not None:
            return [found.name for found in self._path.iterdir() if found.is_file()] if self._path.is_dir() else []
        from pyarrow.fs import FileSelector

        from kuvasz.lake.files.file_io import listing

        lister = listing(self._properties, self._location)
        if lister is None:
            return []
        store, path = lister
        found = store.get_file_info(FileSelector(path, allow_not_found=True))
        return [info.base_name for info in found if info.is_file]


def kept_index(config: Config, properties: Mapping[str, str], uuid: str) -> IndexCheckpoints | None:
    """Return what the store has of a table's index; None if nobody keeps any there.

    Args:
        config: The whole configuration.
        properties: The properties of the lake's FileIO.
        uuid: The table's.
    """
    from kuvasz.index.kept import IndexCheckpoints  # with kernels that who only reads sources has no use for

    place = config.indexes_location
    return None if place is None else IndexCheckpoints(ObjectFolder(f"{place.rstrip('/')}/{uuid}", properties))


def _give_back() -> None:
    """Give the system back what a part of an upload took: PyArrow's pool keeps 10 MB for each thread that had one."""
    from pyarrow import default_memory_pool

    default_memory_pool().release_unused()


def _write(folder: Path, name: str, pieces: Iterable[bytes]) -> None:
    """Write a file so that it is there as a whole, or not at all, whatever happens."""
    private_folder.make_state(folder)
    part = folder / f"{name}{_TEMPORARY}"
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / name)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


__all__ = ["ObjectFolder", "kept_index"]
