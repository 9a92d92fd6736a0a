"""PyIceberg's access to the files of a store, opened once per process."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from kuvasz.lake.files.single_put import StoreFiles
from kuvasz.lake.files.store_access import StoreAccess

#: How many FileIOs a process keeps: those of credentials that are no more go.
_KEPT = 256


def file_io(properties: Mapping[str, str], location: str) -> FileIO:
    """Return the FileIO for a location, one per process, scheme and properties."""
    found = properties.at(location) if isinstance(properties, StoreAccess) else properties
    return _file_io(tuple(sorted(found.items())), location.split("://", 1)[0])


@functools.lru_cache(maxsize=_KEPT)
def _file_io(properties: tuple[tuple[str, str], ...], scheme: str) -> FileIO:
    found = load_file_io(dict(properties), f"{scheme}://")
    return StoreFiles(dict(properties)) if type(found) is PyArrowFileIO else found


__all__ = ["file_io"]
