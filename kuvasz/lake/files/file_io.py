"""The access to the files of a store, opened once per process; PyIceberg's but for S3 and folders of this machine."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kuvasz.config.secrets import LiveTexts
from kuvasz.lake.files.folder_files import Files, FolderFiles
from kuvasz.lake.files.s3_files import StoreFiles, is_s3
from kuvasz.lake.files.store_access import StoreAccess

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

#: How many FileIOs a process keeps: those of credentials that are no more go.
_KEPT = 256

#: Names the class of a FileIO.
_CHOSEN = "py-io-impl"

#: Set in the environment of the daemon of Python workers if they need PyIceberg, so that it is loaded once for all.
PRELOADED = "KUVASZ_PRELOADS_PYICEBERG"


def is_plain(properties: Mapping[str, str], location: str) -> bool:
    """Return whether a location is a folder of this machine, and nobody has chosen a FileIO for it."""
    return location.startswith("file://") and _CHOSEN not in properties


def needs_pyiceberg(properties: Mapping[str, str], location: str) -> bool:
    """Return whether a location is reached through PyIceberg alone."""
    return not is_plain(properties, location) and (_CHOSEN in properties or not is_s3(properties, location))


def preload() -> None:
    """Load PyIceberg for whoever needs it."""
    import pyiceberg.io.pyarrow  # noqa: F401


def file_io(properties: Mapping[str, str], location: str) -> Files:
    """Return the FileIO for a location, one per process, scheme and properties."""
    if isinstance(properties, StoreAccess):
        found = properties.at(location)
    else:
        found = properties.now() if isinstance(properties, LiveTexts) else properties
    return _file_io(tuple(sorted(found.items())), location.split("://", 1)[0])


@functools.lru_cache(maxsize=_KEPT)
def _file_io(properties: tuple[tuple[str, str], ...], scheme: str) -> Files:
    told, location = dict(properties), f"{scheme}://"
    if is_plain(told, location):
        return FolderFiles(told)
    if not needs_pyiceberg(told, location):
        return StoreFiles(told)
    from pyiceberg.io import load_file_io

    return load_file_io(told, location)


def listing(properties: Mapping[str, str], location: str) -> tuple[FileSystem, str] | None:
    """Return what lists a folder, and how it is called there; None for another kind of FileIO, which cannot list."""
    store = file_io(properties, location)
    if isinstance(store, FolderFiles | StoreFiles):
        return store.found(location)
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if not isinstance(store, PyArrowFileIO):
        return None
    scheme, host, path = PyArrowFileIO.parse_location(location, dict(properties))
    return store.fs_by_scheme(scheme, host), path


__all__ = ["PRELOADED", "file_io", "is_plain", "listing", "needs_pyiceberg", "preload"]
