"""The reading of one source as an order of another process says, which applies what is staged here."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from typing_extensions import override

from kuvasz.errors import SourceError, SourceRefused, place_of
from kuvasz.source import conninfo, slots
from kuvasz.source.reading.ends import StreamStart, Upstream
from kuvasz.source.reading.staging import Staging
from kuvasz.state.ports import SourceRecord, StoredRecord
from kuvasz.state.progress import Progress
from kuvasz.state.staged.orders import StreamAnswer, as_source_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from kuvasz.source.reading.options import ReaderOptions
    from kuvasz.staging.staged_log import StagedLog
    from kuvasz.state.staged.orders import GivenOrder


class OrderedReading:
    """The reading. Called on the loop.

    Args:
        source: The source's name.
        url: Returns its url as it is now; called in a thread.
        given: The order.
        log: Where what comes is staged.
        options: What may be tuned.
    """

    def __init__(
        self, source: str, url: Callable[[], str], given: GivenOrder, log: StagedLog, options: ReaderOptions
    ) -> None:
        self.given = given
        self._source = source
        self._url = url
        self._record = _OrderedRecord(given.known.standing)
        order = given.order
        self._staging = Staging(
            Upstream(
                source=source, conninfo=self._ready, slot=order.slot,
                publications=order.publications, system_id=order.system_id or None, staged=log,
                is_own_alone=order.is_own_alone,
            ),
            log,
            Progress(),
            StreamStart(
                record=self._record,
                applied_lsn=lambda: self.given.known.applied_lsn,
                copied=lambda: self.given.known.copied,
                applied=lambda: self.given.known.applied,
                on_rewound=self._refuse,
            ),
            options,
        )  # fmt: skip

    def _refuse(self, _: int) -> None:
        """Go no further: what the lake has of the server before has to be looked at first."""
        raise SourceRefused(
            f"{place_of(self._source)}: another server has taken over",
            hint="the process that applies goes on with it",
        )

    def _ready(self) -> str:
        """End whatever reads the slot: who had this lease before was killed, or sleeps; return how it is reached.

        Its url is asked for each time: nobody begins this anew where only a password is another one.
        """
        url = self._url()
        with contextlib.suppress(SourceError), contextlib.closing(conninfo.connect(url)) as connection:
            slots.end_reader(connection, self.given.order.slot)
        return conninfo.replication_conninfo(url)

    def begin(self) -> None:
        """Begin to receive."""
        self._staging.begin()

    async def end(self) -> None:
        """Tell the source what is staged, and end."""
        await self._staging.end()

    @property
    def answer(self) -> StreamAnswer:
        """What came of the order."""
        return StreamAnswer(
            is_receiving=self._staging.is_receiving.is_set(),
            error=as_source_error(self._staging.error),
            # What is staged says more, and changes all the time.
            standing=dataclasses.replace(self._record.standing, confirmed_lsn=0),
            past=self.given.past,
        )


class _OrderedRecord(StoredRecord):
    """What is known of the source while this process reads it; whoever applies keeps it."""

    def __init__(self, standing: SourceRecord) -> None:
        self.standing = standing

    @property
    @override
    def place(self) -> str:
        return "the order of the process that applies"

    @override
    def update(self, standing: SourceRecord) -> None:
        self.standing = standing

    @override
    def close(self) -> None:
        """Nothing is kept."""


__all__ = ["OrderedReading"]
