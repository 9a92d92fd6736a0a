"""A storage that fails as storages do: it refuses, breaks off in the middle, or loses the end without a word.

Taken for PyIceberg's FileIO with the property ``py-io-impl``. What goes wrong next is said by files in a folder,
``<mode>.<ending>``: whoever takes one away, in any process, is the one to whom it happens.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

FOLDER = "kuvasz.tests.torn"
MODES = ("refuse", "break", "lose")


class TornIO(PyArrowFileIO):
    """See the module."""

    def new_output(self, location: str) -> Any:
        return _Output(super().new_output(location), Path(self.properties[FOLDER]))


class _Output(OutputFile):
    def __init__(self, output: Any, folder: Path) -> None:
        super().__init__(output.location)
        self._output = output
        self._folder = folder

    def __len__(self) -> int:
        return len(self._output)

    def exists(self) -> bool:
        return self._output.exists()

    def to_input_file(self) -> Any:
        return self._output.to_input_file()

    def create(self, overwrite: bool = False) -> Any:
        mode = next((mode for mode in MODES if self._takes(mode)), "")
        if mode == "refuse":
            raise OSError(5, "503 slow down")
        stream = self._output.create(overwrite=overwrite)
        return _Stream(stream, self.location.removeprefix("file://"), mode) if mode else stream

    def _takes(self, mode: str) -> bool:
        try:
            (self._folder / f"{mode}.{self.location.rpartition('.')[2]}").unlink()
        except FileNotFoundError:
            return False
        return True


class _Stream:
    """Loses the second half of what is written."""

    def __init__(self, stream: Any, path: str, mode: str) -> None:
        self._stream, self._path, self._mode = stream, path, mode

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._stream.closed:
            return
        self._stream.close()
        os.truncate(self._path, Path(self._path).stat().st_size // 2)
        if self._mode == "break":
            raise OSError(5, "connection reset by peer")
