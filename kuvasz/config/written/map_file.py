"""The file of a map, exchanged as a whole: after a crash it is the old one or the new one."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from kuvasz.config.written.map_store import NOTHING, MapStore, MapVersion, digest_of
from kuvasz.errors import ConfigError, MapUnwritten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: Of a file that kuvasz makes: it may hold passwords.
_MODE: Final = 0o600


class MapFile(MapStore):
    """The file.

    Args:
        path: Its path; where that is a link, what it leads to is exchanged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path  #: as it was given: links stay, for ConfigMaps are some
        self._path = path.resolve()

    @property
    @override
    def given(self) -> str:
        return str(self.path)

    @property
    @override
    def place(self) -> str:
        return str(self.path)

    @property
    @override
    def folder(self) -> Path:
        return self.path.parent

    @property
    def before(self) -> Path:
        """Where the version before is kept."""
        return self._path.with_name(f"{self._path.name}.before")

    @override
    def is_empty(self) -> bool:
        return not self.path.exists()

    @override
    def raw(self, version: int | None = None) -> bytes:
        if version is not None:
            hint = f"the one before is {self.before}"
            raise ConfigError(f"{self.place} is a file, and nobody counts its versions", hint=hint)
        try:
            return self.path.read_bytes()
        except OSError as error:
            msg = f"cannot read the map {self.place!r}: {(error.strerror or str(error)).lower()}"
            raise ConfigError(msg, hint="name the file with --config or KUVASZ_CONFIG") from None

    @override
    def exchange(self, text: str, digest: str) -> None:
        try:
            with self._alone():
                before = None if digest == NOTHING and self.is_empty() else self.text(digest)
                if before is not None:
                    self._put(self.before, before)
                self._put(self._path, text)
        except OSError as error:
            raise MapUnwritten(
                f"cannot write {self._path}: {(error.strerror or str(error)).lower()}",
                hint="kuvasz has to be allowed to make files in its folder; a file that is mounted by itself, as a"
                " ConfigMap's is, cannot be exchanged: mount a folder",
            ) from error

    @override
    def stamp(self) -> object:
        try:
            found = self.path.stat()
        except OSError:  # who replaces it may have taken it away for a moment
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    @override
    def versions(self) -> Sequence[MapVersion]:
        found = [self._version(self.path, self.raw())]
        with contextlib.suppress(OSError):
            found.append(self._version(self.before, self.before.read_bytes()))
        return found

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Have whoever else exchanges it wait, or only hope for the best on file systems that know no locks."""
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)  # which ends the lock

    @staticmethod
    def _version(path: Path, raw: bytes) -> MapVersion:
        at = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
        return MapVersion(number=0, digest=digest_of(raw), size=len(raw), at=at, by="")

    def _put(self, path: Path, text: str) -> None:
        """Have a file of this text, with the map's own mode and owner, for it may hold passwords."""
        fresh = path.with_name(f"{path.name}.new")
        known = self._path.stat() if self._path.exists() else None
        fresh.unlink(missing_ok=True)
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "wb") as stream:  # noqa: PTH123
            if known is not None:
                with contextlib.suppress(PermissionError):  # of another owner, whose group we are in
                    os.fchown(stream.fileno(), known.st_uid, known.st_gid)
                os.fchmod(stream.fileno(), known.st_mode & 0o777)
            stream.write(text.encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


__all__ = ["MapFile"]
