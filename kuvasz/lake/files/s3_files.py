"""Files on S3, as PyIceberg's FileIO of PyArrow has them, without PyIceberg, which takes 70 MB and 0.5 s of CPU.

Properties and what they mean are PyIceberg's (its page "Configuration", "FileIO", "S3"). What differs is that small
files are written in one request. Left to itself PyArrow opens every file as an upload in parts: three requests, one
after another, for what fits into one. Opened when the first part is full (5 MB), or closed before that, a small file
is a single PUT.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from kuvasz.lake.files.folder_files import BUFFER_BYTES, BUFFER_SIZE

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

_T = TypeVar("_T")

#: Of locations.
SCHEMES: Final = frozenset({"s3", "s3a", "s3n"})

#: Names a class that says when a request is sent again; PyIceberg loads it.
_RETRY: Final = "s3.retry-strategy-impl"

#: What PyArrow calls a setting, and which properties say it, the first one that is there.
_TEXTS: Final = {
    "endpoint_override": ("s3.endpoint",),
    "access_key": ("s3.access-key-id", "client.access-key-id"),
    "secret_key": ("s3.secret-access-key", "client.secret-access-key"),
    "session_token": ("s3.session-token", "client.session-token"),
    "proxy_options": ("s3.proxy-uri",),
    "role_arn": ("s3.role-arn", "client.role-arn"),
    "session_name": ("s3.role-session-name", "client.role-session-name"),
}
_SECONDS: Final = {"connect_timeout": "s3.connect-timeout", "request_timeout": "s3.request-timeout"}
_SWITCHES: Final = {"force_virtual_addressing": "s3.force-virtual-addressing", "anonymous": "s3.anonymous"}
_REGION: Final = ("s3.region", "client.region")
_RESOLVE_REGION: Final = "s3.resolve-region"

_YES: Final = frozenset({"y", "yes", "t", "true", "on", "1"})
_NO: Final = frozenset({"n", "no", "f", "false", "off", "0"})

#: How PyArrow says that access is denied.
_DENIED: Final = "AWS Error [code 15]"


def is_s3(properties: Mapping[str, str], location: str) -> bool:
    """Return whether a location is on S3, and of its properties there is none that PyIceberg alone can read."""
    return location.partition("://")[0] in SCHEMES and _RETRY not in properties


class StoreFiles:
    """Locations that begin with ``s3:``, ``s3a:`` or ``s3n:``. Errors of opening a file to write show at its end.

    Args:
        properties: The properties of the FileIO.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._buffer = int(properties.get(BUFFER_SIZE, BUFFER_BYTES))
        self._store = functools.lru_cache(self._opened)

    def new_input(self, location: str) -> StoreFile:
        """Return a file to read."""
        return StoreFile(*self.found(location), location, self._buffer)

    def new_output(self, location: str) -> StoreFile:
        """Return a file to write."""
        return self.new_input(location)

    def delete(self, location: str) -> None:
        """Delete a file.

        Raises:
            OSError: It is not there, or may not be deleted.
        """
        store, path = self.found(location)
        _told(location, lambda: store.delete_file(path))

    def found(self, location: str) -> tuple[FileSystem, str]:
        """Return what has a location, and how it is called there: bucket and key."""
        told = urlsplit(location)
        return self._store(told.netloc), f"{told.netloc}{told.path}"

    def _opened(self, bucket: str) -> FileSystem:
        from pyarrow.fs import S3FileSystem  # which who only knows of folders need not wait for

        return S3FileSystem(**settings_of(self._properties, bucket))


class StoreFile:
    """One object.

    Args:
        store: Whose it is.
        path: How it is called there.
        location: Where, with its scheme.
        buffer: Bytes that are written at once.
    """

    def __init__(self, store: FileSystem, path: str, location: str, buffer: int) -> None:
        self._store = store
        self._path = path
        self._location = location
        self._buffer = buffer

    def __len__(self) -> int:
        from pyarrow.fs import FileType

        found = self._info()
        if found.type == FileType.NotFound:
            raise FileNotFoundError(f"{self._location} is not there")
        return int(found.size)

    def exists(self) -> bool:
        """Whether it is there."""
        from pyarrow.fs import FileType

        return bool(self._info().type != FileType.NotFound)

    def open(self) -> Any:  # noqa: ANN401 (PyArrow's file)
        """Open it to be read at any place.

        Raises:
            OSError: It is not there, or may not be read.
        """
        return _told(self._location, lambda: self._store.open_input_file(self._path))

    def create(self, overwrite: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 (as PyIceberg has it)
        """Open it to be written.

        Raises:
            OSError: It is there, and is not to be overwritten.
        """
        if not overwrite and self.exists():
            raise FileExistsError(f"{self._location} is there already")
        return _told(self._location, lambda: self._store.open_output_stream(self._path, buffer_size=self._buffer))

    def _info(self) -> FileInfo:
        found: FileInfo = _told(self._location, lambda: self._store.get_file_info(self._path))
        return found


def settings_of(properties: Mapping[str, str], bucket: str) -> dict[str, Any]:
    """Return what PyArrow's file system is opened with.

    Args:
        properties: The properties of the FileIO.
        bucket: The bucket, whose region is asked for where none is told.

    Raises:
        ValueError: A switch is neither on nor off, or a time no number.
    """
    texts = {name: _first(properties, *told) for name, told in _TEXTS.items()}
    made: dict[str, Any] = {name: text for name, text in texts.items() if text}
    made |= {name: float(properties[told]) for name, told in _SECONDS.items() if properties.get(told)}
    switches = {name: _is_on(properties, told) for name, told in _SWITCHES.items()}
    made |= {name: is_on for name, is_on in switches.items() if is_on is not None}
    region = _first(properties, *_REGION)
    if region is None or _is_on(properties, _RESOLVE_REGION):
        region = _region_of(bucket) or region
    if region is not None:
        made["region"] = region
    return {**made, "allow_delayed_open": True}


@functools.lru_cache
def _region_of(bucket: str) -> str | None:
    from pyarrow.fs import resolve_s3_region

    try:
        return str(resolve_s3_region(bucket))
    except (OSError, TypeError):
        return None  # AWS alone has an answer


def _first(properties: Mapping[str, str], *names: str) -> str | None:
    return next((found for name in names if (found := properties.get(name))), None)


def _is_on(properties: Mapping[str, str], name: str) -> bool | None:
    """Return what a switch says; None if nobody says anything."""
    told = str(properties.get(name) or "").lower()
    if told not in _YES | _NO | {""}:
        raise ValueError(f"{name} is neither true nor false: {told!r}")
    return told in _YES if told else None


def _told(location: str, step: Callable[[], _T]) -> _T:
    """Take a step whose refusal, which PyArrow has no error of its own for, is a `PermissionError`."""
    try:
        return step()
    except OSError as error:
        if isinstance(error, FileNotFoundError | PermissionError) or _DENIED not in str(error):
            raise
        raise PermissionError(f"{location}: access is denied: {error}") from error


__all__ = ["SCHEMES", "StoreFile", "StoreFiles", "is_s3", "settings_of"]
