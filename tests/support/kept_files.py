"""Files that live for a moment, kept under other names so that a test can look into them afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq


class KeptFiles:
    """Keeps a link to every file that comes to be at or below some folders while it is entered.

    A file that is there for less time than a look takes is missed: what is wrong again and again is found, and what
    is wrong once may not be.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._kept: dict[Path, Path] = {}
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(folder,), daemon=True, name="keep") for folder in folders
        ]

    def _run(self, folder: Path) -> None:
        while not self._stop.wait(0.001):
            self._look(folder, self._kept[folder])

    def _look(self, folder: Path, kept: Path) -> None:
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        self._look(Path(entry.path), kept)
                    else:
                        os.link(entry.path, kept / f"{entry.inode()}-{entry.name}")

    def __enter__(self) -> Self:
        for folder in self._folders:
            folder.parent.mkdir(parents=True, exist_ok=True)
            self._kept[folder] = Path(tempfile.mkdtemp(dir=folder.parent, prefix="kept-"))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for kept in self._kept.values():
            shutil.rmtree(kept)

    def names(self) -> list[str]:
        """What came to be so far."""
        return [file.name for kept in self._kept.values() for file in kept.iterdir()]

    def words(self, *words: str) -> set[str]:
        """Which words are in any of the files."""
        return {word for kept in self._kept.values() for word in words_at(kept, *words)}


def words_at(path: Path, *words: str) -> set[str]:
    """Which words are in any file at or below a path."""
    found = {word: word.encode() for word in words}
    return {word for text in _texts(path) for word, data in found.items() if data in text}


def _texts(path: Path) -> Iterator[bytes]:
    """Yield the contents of every file at or below a path, of Parquet files as they are read, too."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    for file in files:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            yield file.read_bytes()
            if file.suffix == ".parquet":
                with contextlib.suppress(pa.ArrowInvalid):  # it is being written
                    yield repr(pq.read_table(file, partitioning=None).to_pylist()).encode()
