"""What the parts of one source's life have in common."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from kuvasz.config.secrets import SecretUrl
from kuvasz.config.sources import Source
from kuvasz.errors import ConfigError, KuvaszError, SourceError, place_of
from kuvasz.model import Relation
from kuvasz.own_thread import carry_out
from kuvasz.ports import Lake
from kuvasz.source import conninfo, slots
from kuvasz.sync.context.approvals import Approvals
from kuvasz.sync.context.caveat_log import CaveatLog
from kuvasz.sync.context.current_reader import CurrentReader
from kuvasz.sync.context.lifetime import Lifetime, finished
from kuvasz.sync.context.pasts import Pasts
from kuvasz.sync.context.requests import Requests
from kuvasz.sync.context.shared import Shared
from kuvasz.sync.context.source_tables import SourceTables
from kuvasz.sync.context.troubles import Troubles

P = ParamSpec("P")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """What each part of one source's life stands on."""

    source: Source  #: from the map; with its tables as last seen it is `SourceTables.source`
    servers: str  #: where it is, ``host:port``, several with commas
    shared: Shared
    lifetime: Lifetime
    source_tables: SourceTables
    requests: Requests
    approvals: Approvals
    troubles: Troubles
    caveats: CaveatLog
    current: CurrentReader
    pasts: Pasts

    @classmethod
    def of(cls, source: Source, shared: Shared, servers: str | None = None) -> SourceContext:
        """Return the context of a source that begins.

        Args:
            source: From the map.
            shared: What all sources share.
            servers: Where it is, if somebody has looked already; else its url is read.

        Raises:
            ConfigError: A file that holds a part of the url cannot be read.
        """
        lifetime = Lifetime()
        source_tables = SourceTables(source, shared.lake, shared.states, shared.progress)
        pasts = Pasts()
        pasts.whenever_given_up(source_tables.gap_starts.fall_back)
        requests, approvals = Requests(source_tables, lifetime), Approvals(shared.mask_secret)
        return cls(
            source=source, servers=servers or conninfo.servers(source.url.get()), shared=shared, lifetime=lifetime,
            source_tables=source_tables, requests=requests, approvals=approvals,
            troubles=Troubles(source_tables, requests, approvals),
            caveats=CaveatLog(source, source_tables), current=CurrentReader(), pasts=pasts,
        )  # fmt: skip

    def url(self) -> str:
        """Return the url for a connection that is made now: a password in it may have changed.

        Raises:
            SourceError: A file that holds a part of it cannot be read.
        """
        with self._told():
            return self.source.url.get()

    def replication_url(self) -> str:
        """Return the same for what needs `REPLICATION`: another role's, if the map has one for that.

        Raises:
            SourceError: A file that holds a part of it cannot be read.
        """
        with self._told():
            return slots.url_of(self.source)

    @property
    def copies_from(self) -> SecretUrl | None:
        """The standby that tables are copied from, as the map that runs has it; None: the source itself."""
        limits = self.shared.copy_limits(self.servers)
        return limits.copied_from

    def copy_url(self) -> str:
        """Return the url of the server that tables are copied from; see `url`.

        Raises:
            SourceError: A file that holds a part of it cannot be read.
        """
        standby, url = self.copies_from, self.url()
        with self._told():
            return url if standby is None else conninfo.overlaid(url, standby.get())

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Have a file that is missing be this source's error: it may be there in a moment, and would end kuvasz."""
        try:
            yield
        except ConfigError as error:
            raise SourceError(f"{place_of(self.source.name)}: {error.message}", hint=error.hint) from error

    @contextlib.contextmanager
    def slot_session(self, reading: Any) -> Iterator[Any]:  # noqa: ANN401 (psycopg's, which is known to `source` alone)
        """Give a session that may drop the slot, and end who reads it; see `kuvasz.source.slots`.

        Args:
            reading: An ordinary session.

        Raises:
            SourceError: It cannot be had now.
        """
        with contextlib.ExitStack() as stack:
            with self._told():
                given = stack.enter_context(slots.slot_session(self.source, reading))
            yield given

    async def ask(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Run what asks the source in a thread."""
        job = concurrent.futures.Future[T]()
        call = functools.partial(function, *arguments, **options)
        try:
            await self.shared.threads.run(self.servers, carry_out, job, call)
        except asyncio.CancelledError:
            if not job.cancel():
                self.lifetime.leave(job)
            raise
        return job.result()

    @property
    def snapshots(self) -> asyncio.Semaphore:
        """The permits to wait for a snapshot at the source's server."""
        return self.shared.threads.snapshots(self.servers)

    def targets_of(self, relation: Relation) -> list[str]:
        """Return the targets that the changes of a relation go to."""
        return [target for target, _ in self.shared.routes.find(self.source.name, relation)]

    async def resume(self, target: str, name: str) -> None:
        """Have the failure of a target behind it: its own for all of its sources, or that of one.

        Args:
            target: The name of the target.
            name: By which it knows this source.

        Raises:
            SourceError: kuvasz stops.
        """
        lake, progress = self.shared.lake, self.shared.progress
        while (error := lake.failure(target, name)) is not None:
            # Who follows is not told yet: what were gathered of him from now on could be written behind the gap.
            self.shared.states.fail(
                target, error, hold=lambda source: progress.hold(source, target),
                is_due=functools.partial(_is_current, lake, target, name, error),
                source=None if lake.failure(target) is error else name,
            )  # fmt: skip
            await self.shared.settle(target)
            await finished(lake.resume, target, error)

    def settle(self, target: str) -> None:
        """Return when nothing that has begun for a target is under way; not from the loop itself."""
        self.lifetime.complete(self.shared.settle(target))


def _is_current(lake: Lake, target: str, name: str, error: KuvaszError) -> bool:
    return lake.failure(target, name) is error


__all__ = ["SourceContext"]
