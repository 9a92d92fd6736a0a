"""Erasures that were asked for by HTTP: a file each in the state folder, from the request to the receipt."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

from kuvasz import private_folder
from kuvasz.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Beside the journals and receipts.
_FOLDER: Final = ("erasures", "asked")

_ID: Final = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9a-f]{8}")

#: States in which it is to be carried out still: what was running when kuvasz was killed goes on.
_DUE: Final = frozenset({"waiting", "running"})

#: What nobody needs to know once it is done, and nobody is shown: the key is somebody's data.
_PRIVATE: Final = "key"

#: What lists leave out: it has an entry for each table.
_LONG: Final = "receipt"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ErasureOrder:
    """What is to be erased: all rows of a sid, or one row of a table."""

    sid: str | None = None
    database: str | None = None
    table: str | None = None
    key: tuple[str, ...] = ()
    with_tags: bool = False
    with_unclear: bool = False

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> ErasureOrder:
        """Return what a request's body, or what is kept of it, asks for."""
        given = {
            field.name: body[field.name] for field in dataclasses.fields(cls) if body.get(field.name) is not None
        }
        return cls(**given | {"key": tuple(given.get("key", ()))})

    @property
    def is_of_row(self) -> bool:
        """Whether one row is meant, and not all of a sid."""
        return self.table is not None or bool(self.key)


class ErasureBook:
    """The book of them. Blocks.

    Args:
        folder: The state folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.joinpath(*_FOLDER)

    def note(self, asked: ErasureOrder, by: str) -> dict[str, Any]:
        """Note what is asked for, so that no end of kuvasz loses it; return what is shown of it."""
        now = datetime.datetime.now(datetime.UTC)
        record = {
            "id": f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}",
            "state": "waiting",
            "by": by,
            "asked_at": now.isoformat(timespec="seconds"),
            "ended_at": None,
            **dataclasses.asdict(asked),
            "error": None,
            "hint": None,
        }
        self._put(record)
        return shown(record)

    def all(self) -> list[dict[str, Any]]:
        """Return all that are known, in the order in which they were asked for, without their receipts."""
        names = sorted(path.stem for path in self._folder.glob("*.json")) if self._folder.is_dir() else []
        found = (self._read(name) for name in names if _ID.fullmatch(name))
        return [{name: value for name, value in shown(one).items() if name != _LONG} for one in found if one]

    def find(self, name: str) -> dict[str, Any] | None:
        """Return one, with its receipt if there is one; None if there is none of this id."""
        record = self._read(name) if _ID.fullmatch(name) else None
        return None if record is None else shown(record)

    def due(self) -> list[str]:
        """Return the ids of those that are to be carried out, in their order."""
        return [one["id"] for one in self.all() if one["state"] in _DUE]

    def begin(self, name: str) -> ErasureOrder:
        """Note that one is carried out now; return what it asks for."""
        record = self._known(name)
        self._put(record | {"state": "running"})
        return ErasureOrder.of(record)

    def done(self, name: str, receipt: Mapping[str, Any]) -> None:
        """Note that one is done, and what is to be read of that."""
        self._end(name, state="done", receipt=dict(receipt))

    def failed(self, name: str, error: str, hint: str | None) -> None:
        """Note why one was not done: whoever asks for it again has it go on where it was."""
        self._end(name, state="failed", error=error, hint=hint)

    def _end(self, name: str, **facts: Any) -> None:  # noqa: ANN401 (JSON)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._put(self._known(name) | {_PRIVATE: None, "ended_at": now} | facts)

    def _known(self, name: str) -> dict[str, Any]:
        record = self._read(name)
        if record is None:
            raise self._unusable(self._file(name), "it is gone")
        return record

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._file(name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._unusable(self._file(name), error) from error
        return found

    def _put(self, record: Mapping[str, Any]) -> None:
        file = self._file(record["id"])
        try:
            private_folder.make_state(self._folder)
            private_folder.exchange(file, json.dumps(record, indent=1, ensure_ascii=False), is_private=True)
        except OSError as error:
            raise self._unusable(file, error) from error

    @staticmethod
    def _unusable(file: Path, error: object) -> StateError:
        return StateError(
            f"{file}, where an erasure was asked for, cannot be used: {error}",
            hint="let kuvasz read and write there; if the file is damaged remove it, and ask for the erasure again",
        )


def shown(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what anybody is shown of one."""
    return {name: value for name, value in record.items() if name != _PRIVATE}


__all__ = ["ErasureBook", "ErasureOrder", "shown"]
