"""Who commits next: how another process asks the one that writes a table to wait a moment.

The one that writes a busy table commits so often that what another one resolved against it never fits any more.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kuvasz.lake.jvm.iceberg_table import IcebergTable

#: Table property by which another process asks the one that writes the table to wait a moment with its next commit.
YIELD_PROPERTY = "kuvasz.yield"
#: How long it waits at most, once per value of the property: whoever asked may be dead.
YIELD_S = 10.0
_LOOK_S = 0.1


class CommitYield:
    """Whose turn it is at one table.

    Args:
        table: The Iceberg table.
    """

    def __init__(self, table: IcebergTable) -> None:
        self._table = table
        self._asked = ""  #: what `YIELD_PROPERTY` said when it was noted
        self._yielded = ""  #: to which value of it we have yielded already
        self._readings = 0  #: how often others' commits had been read then

    def note(self, readings: int) -> None:
        """Note whether someone asks, as the table was at its last look, if others' commits were read since.

        Args:
            readings: How often they were read (`kuvasz.lake.table.table_index.TableIndex.readings`). Who asks commits
                something, which may be found beneath a commit of our own, where nobody looks for it.
        """
        if readings != self._readings:
            self._readings = readings
            self._asked = self._table.properties.get(YIELD_PROPERTY, "")

    def give(self) -> bool:
        """Wait until the process that was noted has committed, or for `YIELD_S`; return whether one was."""
        if not self._asked or self._asked == self._yielded:
            return False
        self._yielded = self._asked
        end = time.monotonic() + YIELD_S
        while self._table.properties.get(YIELD_PROPERTY) == self._asked and time.monotonic() < end:
            time.sleep(_LOOK_S)
            self._table.refresh()
        return True

    def ask(self) -> None:
        """Ask the process that writes this table to let our next commit, which must take this back, go first."""
        self._table.touch({YIELD_PROPERTY: uuid.uuid4().hex})

    def stop_asking(self) -> None:
        """Take back `ask`, if there was no such commit."""
        self._table.remove_properties([YIELD_PROPERTY])
