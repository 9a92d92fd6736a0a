"""How far an erasure is: a file by which whoever begins it again goes on, and of which its receipt is made."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from kuvasz import private_folder
from kuvasz.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FOLDER: Final = "erasures"


class Journal:
    """The journal of one erasure.

    Args:
        folder: The state folder.
        asked: What is erased, by which it is found again.
    """

    def __init__(self, folder: Path, asked: Mapping[str, str | None]) -> None:
        text = json.dumps(asked, sort_keys=True, ensure_ascii=False)
        self.id = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._folder = folder / FOLDER
        self._file = self._folder / f"{self.id}.json"
        self.told: dict[str, Any] = self._read()

    @property
    def is_begun(self) -> bool:
        """Whether an earlier call has begun, and did not end."""
        return bool(self.told)

    def table(self, name: str) -> dict[str, Any]:
        """Return what is told of a table, to be changed and saved."""
        found: dict[str, Any] = self.told.setdefault("tables", {}).setdefault(name, {"done": []})
        return found

    def save(self) -> None:
        """Make it durable as it is: after a crash the file is the old one or the new one.

        Raises:
            StateError: It cannot be written.
        """
        self._put(self._file, json.dumps(self.told, indent=1, ensure_ascii=False))

    def keep(self, table: str, lines: Iterable[str]) -> None:
        """Keep the names of the files that a table has, unless that was done."""
        file = self._names_of(table)
        if not file.exists():
            self._put(file, "".join(f"{line}\n" for line in lines))

    def kept(self, table: str) -> set[str]:
        """Return these names."""
        try:
            return set(self._names_of(table).read_text(encoding="utf-8").split("\n")) - {""}
        except OSError as error:
            raise self._unusable(self._names_of(table), error) from error

    def finish(self, receipt: Mapping[str, Any], name: str) -> Path:
        """Keep the receipt, and forget the journal; returns where the receipt is."""
        path = self._folder / f"{name}.json"
        self._put(path, json.dumps(receipt, indent=1, ensure_ascii=False))
        for table in self.told.get("tables", {}):
            self._names_of(table).unlink(missing_ok=True)
        self._file.unlink(missing_ok=True)
        return path

    def _names_of(self, table: str) -> Path:
        return self._folder / f"{self.id}-{hashlib.sha256(table.encode()).hexdigest()[:16]}.files"

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise self._unusable(self._file, error) from error
        return found

    def _put(self, path: Path, text: str) -> None:
        try:
            private_folder.make_state(self._folder)
            private_folder.exchange(path, text)
        except OSError as error:
            raise self._unusable(path, error) from error

    @staticmethod
    def _unusable(path: Path, error: Exception) -> StateError:
        return StateError(
            f"the journal {path} cannot be used: {error}",
            hint="let kuvasz read and write there; without it the erasure begins anew, and its receipt counts less",
        )


__all__ = ["FOLDER", "Journal"]
