"""The file of a map, exchanged as a whole: after a crash it is the old one or the new one."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING

from kuvasz.config import file
from kuvasz.errors import ConfigError, MapUnwritten

if TYPE_CHECKING:
    from pathlib import Path


class MapFile:
    """The file. Blocks.

    Args:
        path: Its path; where that is a link, what it leads to is exchanged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()

    @property
    def before(self) -> Path:
        """Where the version before is kept."""
        return self._path.with_name(f"{self._path.name}.before")

    def text(self, digest: str) -> str:
        """Return what it has, with its line ends and byte-order mark.

        Args:
            digest: SHA-256 of what it is to have.

        Raises:
            ConfigError: It cannot be read, or has something else by now.
        """
        raw = file.raw(self._path)
        if hashlib.sha256(raw).hexdigest() != digest:
            raise ConfigError(
                f"{self._path} is not what this kuvasz runs by: somebody changed it since it was read",
                hint="have it read again (`kuvasz reload`), look at what it has now, and try it again",
            )
        return raw.decode("utf-8")

    def exchange(self, text: str, digest: str) -> None:
        """Put another text in its place, and keep the one before beside it.

        Args:
            text: What it is to have.
            digest: SHA-256 of what it has now.

        Raises:
            ConfigError: It has something else by now.
            MapUnwritten: It cannot be written: it stays as it was.
        """
        before = self.text(digest)
        try:
            self._put(self.before, before)
            self._put(self._path, text)
        except OSError as error:
            raise MapUnwritten(
                f"cannot write {self._path}: {(error.strerror or str(error)).lower()}",
                hint="kuvasz has to be allowed to make files in its folder; a file that is mounted by itself, as a"
                " ConfigMap's is, cannot be exchanged: mount a folder",
            ) from error

    def _put(self, path: Path, text: str) -> None:
        """Have a file of this text, with the map's own mode and owner, for it may hold passwords."""
        fresh = path.with_name(f"{path.name}.new")
        known = self._path.stat()
        fresh.unlink(missing_ok=True)
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:  # noqa: PTH123
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
