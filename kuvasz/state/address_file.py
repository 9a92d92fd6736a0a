"""Where the running kuvasz answers, in a file of the state folder that its own user alone can read, `server.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from kuvasz.errors import ConfigError
from kuvasz.state.ports import ServerAddress, StoredAddress

FILE = "server.json"


class AddressFile(StoredAddress):
    """The file.

    Args:
        folder: The state folder; made when there is an address to leave.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    @property
    @override
    def place(self) -> str:
        return str(self._file)

    @override
    def find(self) -> ServerAddress | None:
        """See `StoredAddress.find`."""
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
            return ServerAddress(url=found["url"], token=found["token"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @override
    def all(self) -> Sequence[ServerAddress]:
        """See `StoredAddress.all`."""
        found = self.find()
        return [] if found is None else [found]

    @override
    def leave(self, address: ServerAddress) -> None:
        """See `StoredAddress.leave`. The file is a new one, never what somebody else has opened."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.unlink(missing_ok=True)
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump({"url": address.url, "token": address.token, "pid": os.getpid()}, stream)
        except OSError as error:
            raise ConfigError(
                f"pipeline.state: cannot write {self._file}: {(error.strerror or str(error)).lower()}",
                hint="choose a folder that kuvasz may write",
            ) from error

    @override
    def remove(self, address: ServerAddress) -> None:
        """See `StoredAddress.remove`."""
        if self.find() == address:
            self._file.unlink(missing_ok=True)


__all__ = ["FILE", "AddressFile"]
