"""Erasures that were asked for by HTTP, carried out by a process that replicates: before it begins, or in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kuvasz import log
from kuvasz.admin.erasures import interim_server
from kuvasz.admin.erasures.erasure_book import ErasureBook
from kuvasz.config import load
from kuvasz.errors import KuvaszError
from kuvasz.events import Event, EventLog
from kuvasz.state.store import state_of
from kuvasz.verbs.maps import patterns

if TYPE_CHECKING:
    from kuvasz.admin.erasures.erasure_book import ErasureOrder
    from kuvasz.config.load import Loaded
    from kuvasz.config.model import Config

_log = EventLog(__name__)


class ErasureRun:
    """The erasures of one process, which owns the state. On the loop.

    Args:
        config: The map.
    """

    def __init__(self, config: Config) -> None:
        self.book = ErasureBook(config.pipeline.state_folder)
        self._untold: list[tuple[Event, dict[str, Any]]] = []

    async def are_due(self) -> bool:
        """Whether some are to be carried out."""
        return bool(await asyncio.to_thread(self.book.due))

    async def carry_out(self, loaded: Loaded) -> Loaded:
        """Carry out what is due, while nothing replicates; return the map as it is afterwards.

        The process may be killed at any moment meanwhile: the next one goes on.

        Raises:
            StateError: The book cannot be read or written.
            ConfigError: The map is faulty afterwards.
        """
        async with interim_server.serve(loaded, state_of(loaded.config), self.book):
            for name in await asyncio.to_thread(self.book.due):
                known = await asyncio.to_thread(patterns.known, loaded)  # as it was read, patterns have no tables
                await asyncio.to_thread(self._carry_out, name, known)
                loaded = await asyncio.to_thread(load.again, loaded)  # a source may have left it
                log.hide(loaded.secrets)
        return loaded

    def _carry_out(self, name: str, loaded: Loaded) -> None:
        order = self.book.begin(name)
        _log.tell(Event.ERASING, what=name)
        try:
            receipt = _erase(loaded, order)
        except KuvaszError as error:
            self.book.failed(name, error.message, error.hint)
            self._untold.append((Event.ERASURE_FAILED, {"what": name, "error": str(error)}))
        except Exception as error:  # noqa: BLE001 (all sources wait for this)
            self.book.failed(name, f"{type(error).__name__}: {error}", None)
            self._untold.append((Event.ERASURE_FAILED, {"what": name, "error": repr(error)}))
        else:
            self.book.done(name, receipt)
            told = Event.ERASED if receipt["is_clean"] else Event.ERASED_IN_PART
            self._untold.append((told, {"what": name, "file": receipt["file"]}))

    def tell(self) -> None:
        """Tell what came of them, once there is a lake again that hears it."""
        for event, facts in self._untold:
            _log.tell(event, **facts)
        self._untold.clear()


def _erase(loaded: Loaded, order: ErasureOrder) -> dict[str, Any]:
    """Return the receipt."""
    from kuvasz.admin.sources.mapped_url import SourceSelection
    from kuvasz.verbs.sources import erasing, row_erasing
    from kuvasz.verbs.sources.row_erasing import ErasureRequest

    if order.is_of_row:
        row = ErasureRequest(
            table=order.table, key=order.key, sid=order.sid, database=order.database, with_unclear=order.with_unclear
        )
        return row_erasing.run(loaded.config, row, is_sure=True, with_tags=order.with_tags, is_owner=True)
    choice = SourceSelection(database=order.database, sid=order.sid)
    return erasing.run(loaded, choice, is_sure=True, with_tags=order.with_tags, is_owner=True)


__all__ = ["ErasureRun"]
