"""How far a parking log goes, noted beside it: an older copy of it that is put back agrees with itself.

Noted behind what was appended, without waiting for a disk, and wherever that was in vain it says less: what counts is
that the log once was as far as it says.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

from typing_extensions import override

from kuvasz import lsn
from kuvasz.errors import StateError, unreadable

if TYPE_CHECKING:
    from kuvasz.state.coordinator.documents import Documents

#: A note is written over the one before it: always as long, so that none is ever seen half.
_NOTE_BYTES: Final = 128


class Reach(NamedTuple):
    """What is noted of one log."""

    log_id: str
    last_lsn: int  #: as `TableLog.last_lsn`

    @classmethod
    def of_json(cls, found: Any) -> Self | None:  # noqa: ANN401 (JSON)
        """Return the reach from its JSON; None of what is none."""
        try:
            return cls(str(found["log"]), lsn.parse(found["last"]))
        except (ValueError, KeyError, TypeError):
            return None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of it."""
        return {"log": self.log_id, "last": lsn.render(self.last_lsn)}


class StoredReach(Protocol):
    """Where the reach of one table's log is noted. Calls block."""

    def read(self) -> Reach | None:
        """Return what was noted last; None: nothing, or nobody can make sense of it.

        Raises:
            StateError: It cannot be had now.
        """

    def note(self, reach: Reach) -> None:
        """Note how far the log is by now. Nothing raises: an older note is one all the same."""

    def remove(self) -> None:
        """Forget the reach of a log that is gone.

        Raises:
            StateError: It cannot be removed.
        """


class ReachFile(StoredReach):
    """A file, apart from the folder of the log.

    Args:
        path: Where it is.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @override
    def read(self) -> Reach | None:
        """See `StoredReach.read`."""
        try:
            return Reach.of_json(json.loads(self._path.read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            raise unreadable(self._path, error) from error

    @override
    def note(self, reach: Reach) -> None:
        """See `StoredReach.note`: without waiting for the disk, or keeping the file open: there may be thousands."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(descriptor, json.dumps(reach.as_json()).ljust(_NOTE_BYTES).encode(), 0)
            finally:
                os.close(descriptor)

    @override
    def remove(self) -> None:
        """See `StoredReach.remove`."""
        try:
            self._path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise StateError(f"{self._path} cannot be removed: {why}") from error


class ReachDocument(StoredReach):
    """A document of the coordinator, for whichever process has the log next.

    Args:
        documents: Where it is.
        name: By which name.
    """

    def __init__(self, documents: Documents, name: str) -> None:
        self._documents = documents
        self._name = name

    @override
    def read(self) -> Reach | None:
        """See `StoredReach.read`."""
        return Reach.of_json(self._documents.get(self._name))

    @override
    def note(self, reach: Reach) -> None:
        """See `StoredReach.note`."""
        with contextlib.suppress(StateError):
            self._documents.put({self._name: reach.as_json()})

    @override
    def remove(self) -> None:
        """See `StoredReach.remove`."""
        self._documents.put({self._name: None})


__all__ = ["Reach", "ReachDocument", "ReachFile", "StoredReach"]
