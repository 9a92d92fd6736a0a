"""The numbers of the map's entries in one file of the state folder, `numbers.json`."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from kuvasz import private_folder
from kuvasz.errors import StateError
from kuvasz.state.numbers.numbers_of_kind import EntryName, NumbersOfKind
from kuvasz.state.ports import StoredNumbers

FILE: Final = "numbers.json"

#: Of the file; one of a later version is refused.
VERSION: Final = 1


class NumberFile(StoredNumbers):
    """The file.

    Args:
        folder: The state folder; made when there is something to number.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._turn = threading.Lock()
        self._kept: dict[str, NumbersOfKind] | None = None  #: what the file has; None: it was not read yet

    @override
    def given(self, kind: str, names: Sequence[EntryName]) -> Mapping[EntryName, int]:
        """See `StoredNumbers.given`. After a crash the file is the old one or the new one."""
        with self._turn:
            found = self._of(kind).with_all(names)
            self._keep(kind, found)
        return {name: found.names[name] for name in names}

    @override
    def announce(self, kind: str, before: EntryName, after: EntryName) -> None:
        """See `StoredNumbers.announce`."""
        with self._turn:
            self._keep(kind, self._of(kind).announced(before, after))

    @override
    def rename(self, kind: str, before: EntryName, after: EntryName) -> None:
        """See `StoredNumbers.rename`."""
        with self._turn:
            self._keep(kind, self._of(kind).renamed(before, after))

    @override
    def all(self) -> Mapping[str, NumbersOfKind]:
        """See `StoredNumbers.all`."""
        with self._turn:
            return dict(self._known())

    @override
    def bring(self, kinds: Mapping[str, NumbersOfKind]) -> None:
        """See `StoredNumbers.bring`."""
        with self._turn:
            for kind, numbers in kinds.items():
                self._keep(kind, numbers)

    def _known(self) -> dict[str, NumbersOfKind]:
        if self._kept is None:
            self._kept = self._read()
        return self._kept

    def _of(self, kind: str) -> NumbersOfKind:
        return self._known().get(kind, NumbersOfKind())

    def _keep(self, kind: str, found: NumbersOfKind) -> None:
        if found != self._of(kind):
            after = {**self._known(), kind: found}
            self._write(after)
            self._kept = after

    def _read(self) -> dict[str, NumbersOfKind]:
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
            if found["version"] > VERSION:
                raise StateError(
                    f"{self._file} is of version {found['version']}, and this kuvasz knows {VERSION}",
                    hint="run a later version of kuvasz",
                )
            return {kind: NumbersOfKind.of_json(entry) for kind, entry in found["kinds"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateError(
                f"{self._file} cannot be read: {error}",
                hint="restore it, or remove it: the entries of the map then get other numbers in the management API",
            ) from error

    def _write(self, kinds: Mapping[str, NumbersOfKind]) -> None:
        kept = {"version": VERSION, "kinds": {kind: one.as_json() for kind, one in kinds.items()}}
        try:
            private_folder.exchange(self._file, json.dumps(kept))
        except OSError as error:
            raise StateError(
                f"{self._file} cannot be written: {(error.strerror or str(error)).lower()}",
                hint="make room, or choose another folder for `pipeline.state`",
            ) from error


__all__ = ["FILE", "VERSION", "NumberFile"]
