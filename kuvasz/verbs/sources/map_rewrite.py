"""A map's file changed by a command, and the running kuvasz told: whatever that refuses is taken back."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Final

from kuvasz.config import load
from kuvasz.config.written import map_text
from kuvasz.errors import ConfigError
from kuvasz.verbs import remote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kuvasz.config.load import Loaded
    from kuvasz.config.written.map_edit import MapEdit

#: The running kuvasz may be putting the map before it into use.
_BUSY_S: Final = 60.0

_PAUSE_S: Final = 0.5


class MapRewrite:
    """A change of the file. Blocks.

    Args:
        loaded: The map, as it was read a moment ago.
        edits: What is to be changed; or its whole new text.

    Raises:
        ConfigError: The map is from no file, cannot be changed there, or would be faulty.
    """

    def __init__(self, loaded: Loaded, edits: Sequence[MapEdit] | str) -> None:
        self._before = loaded
        self._file = loaded.editable
        self._old = self._file.text(loaded.digest)
        self._new = edits if isinstance(edits, str) else map_text.edited(self._old, edits)
        self.loaded = load.with_text(loaded, self._new)  #: what the map would be

    def write(self) -> None:
        """Write the file: nothing runs that would go by it.

        Raises:
            MapUnwritten: It cannot be written.
        """
        self._file.exchange(self._new, self._before.digest)

    def take_over(self, *, drop_removed: bool | None = None) -> bool:
        """Write the file, and have the running kuvasz go by it; return whether one runs.

        Args:
            drop_removed: Whether slots of sources that leave are dropped by it; None: the map says so.

        Raises:
            MapUnwritten: The file cannot be written.
            Refused: The running kuvasz cannot go by it: the file is as it was.
        """
        config = self._before.config
        try:
            remote.reload(config, is_trial=True)  # whether it can be asked at all
        except (remote.NotRunning, ConfigError):
            self.write()
            return False
        self.write()
        give_up = time.monotonic() + _BUSY_S
        while True:
            try:
                remote.reload(config, drop_removed=drop_removed)
            except remote.BusyMap:
                if time.monotonic() >= give_up:
                    self._undo()
                    raise
                time.sleep(_PAUSE_S)
            except remote.Refused:
                self._undo()
                raise
            else:
                return True

    def _undo(self) -> None:
        self._file.exchange(self._old, hashlib.sha256(self._new.encode("utf-8")).hexdigest())


__all__ = ["MapRewrite"]
