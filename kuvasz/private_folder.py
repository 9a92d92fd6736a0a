"""Folders for what only this user may see, such as rows before anything is masked; files, exchanged as a whole."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

_OTHERS = 0o077


def make(folder: Path) -> None:
    """Make a folder that nobody else can read, below parents as usual; or make sure that it is one.

    In a place where everybody may write, a stranger may have made it before, or a link to somewhere else.

    Raises:
        OSError: It cannot be made, or is somebody else's.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it is somebody else's", str(folder))
    _close(folder, found)


def make_state(folder: Path) -> None:
    """Make a folder like that where the operator may have put one: a link is followed, a volume of root's is left.

    Raises:
        OSError: It cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid == os.geteuid():
        with contextlib.suppress(OSError):  # some mounted volumes have no permissions to set
            _close(folder, found)


def exchange(file: Path, text: str, *, is_durable: bool = True, is_private: bool = False) -> None:
    """Have a file hold a text; it holds all of it, or what it held before, whatever happens meanwhile.

    Args:
        file: The file; its folder is made if it is missing.
        text: The text.
        is_durable: Whether it is on the disk when this returns: a crash of the machine leaves it as it is then.
        is_private: Whether this user alone may read it, whatever the folder allows.

    Raises:
        OSError: It holds what it held before.
    """
    fresh = file.with_suffix(".new")
    file.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o600 if is_private else 0o666
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        if is_durable:
            stream.flush()
            os.fsync(stream.fileno())
    fresh.replace(file)
    if is_durable:
        sync(file.parent)


def sync(folder: Path) -> None:
    """Have a crash of the machine leave files in a folder under the names that they have now."""
    with contextlib.suppress(OSError):  # some mounted volumes cannot, and the file has its name
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _close(folder: Path, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if mode & _OTHERS:
        folder.chmod(mode & ~_OTHERS)


__all__ = ["exchange", "make", "make_state", "sync"]
