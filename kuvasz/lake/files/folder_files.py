"""Files in folders of this machine, as PyIceberg's FileIO of PyArrow has them, without PyIceberg.

That is sixty modules and what they need in turn: half a second of CPU in the driver and again in the daemon of the
Python workers, for folders that PyArrow reaches by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem, LocalFileSystem

#: What PyIceberg calls the size of a buffer, and what it is when nobody says otherwise.
BUFFER_SIZE = "buffer-size"
BUFFER_BYTES = 1 << 20


class FileToRead(Protocol):
    """A file that is there, or may be."""

    def __len__(self) -> int: ...

    def exists(self) -> bool:
        """Whether it is there."""

    def open(self) -> Any:  # noqa: ANN401 (PyArrow's file)
        """Open it to be read at any place."""


class FileToWrite(Protocol):
    """A file that is to be."""

    def create(self, overwrite: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 (as PyIceberg has it)
        """Open it to be written."""


class Files(Protocol):
    """The files of a store, by location: what kuvasz asks of PyIceberg's FileIO."""

    def new_input(self, location: str) -> FileToRead:
        """Return a file to read."""

    def new_output(self, location: str) -> FileToWrite:
        """Return a file to write."""

    def delete(self, location: str) -> None:
        """Delete a file."""


class FolderFiles:
    """Locations that begin with ``file:``.

    Args:
        properties: The properties of the FileIO, of which a folder goes by one: the size of buffers.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        from pyarrow.fs import LocalFileSystem  # which who only knows of folders need not wait for

        self._store = LocalFileSystem()
        self._buffer = int(properties.get(BUFFER_SIZE, BUFFER_BYTES))

    def new_input(self, location: str) -> FolderFile:
        """Return a file to read."""
        return FolderFile(self._store, location, self._buffer)

    def new_output(self, location: str) -> FolderFile:
        """Return a file to write."""
        return self.new_input(location)

    def delete(self, location: str) -> None:
        """Delete a file.

        Raises:
            OSError: It is not there, or may not be deleted.
        """
        self._store.delete_file(path_of(location))

    def found(self, location: str) -> tuple[FileSystem, str]:
        """Return what lists a folder, and how it is called there."""
        return self._store, path_of(location)


class FolderFile:
    """One file.

    Args:
        store: Whose it is.
        location: Where.
        buffer: Bytes that are written at once.
    """

    def __init__(self, store: LocalFileSystem, location: str, buffer: int) -> None:
        self._store = store
        self._path = path_of(location)
        self._location = location
        self._buffer = buffer

    def __len__(self) -> int:
        from pyarrow.fs import FileType

        found = self._store.get_file_info(self._path)
        if found.type == FileType.NotFound:
            raise FileNotFoundError(f"{self._location} is not there")
        return int(found.size)

    def exists(self) -> bool:
        """Whether it is there."""
        from pyarrow.fs import FileType

        return bool(self._store.get_file_info(self._path).type != FileType.NotFound)

    def open(self) -> Any:  # noqa: ANN401 (PyArrow's file)
        """Open it to be read at any place.

        Raises:
            OSError: It is not there, or may not be read.
        """
        return self._store.open_input_file(self._path)

    def create(self, overwrite: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 (as PyIceberg has it)
        """Open it to be written, and make its folder where there is none.

        Raises:
            OSError: It may not be written; or it is there, and is not to be overwritten.
        """
        if not overwrite and self.exists():
            raise FileExistsError(f"{self._location} is there already")
        self._store.create_dir(str(Path(self._path).parent), recursive=True)
        return self._store.open_output_stream(self._path, buffer_size=self._buffer)


def path_of(location: str) -> str:
    """Return the path of a location, as PyIceberg reads it."""
    found = urlsplit(location)
    return f"{found.netloc}{found.path}"


__all__ = [
    "BUFFER_BYTES", "BUFFER_SIZE", "FileToRead", "FileToWrite", "Files", "FolderFile", "FolderFiles", "path_of",
]  # fmt: skip
