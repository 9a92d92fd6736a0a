"""A process that stands by: Spark runs, the catalog is reached, all is compiled, and no table is touched.

Its turn comes when the lease is given back, or when nobody has heard of its holder for as long. It takes nothing over
from one that has another map: whichever of the two is the old one, a person has not been everywhere yet.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from kuvasz.config import load
from kuvasz.config.model import SECTIONS, ClusterRole
from kuvasz.errors import ConfigError, StateError
from kuvasz.events import Event, EventLog
from kuvasz.state.store import state_of, table_owners

if TYPE_CHECKING:
    from kuvasz.app import App
    from kuvasz.config.load import Loaded
    from kuvasz.config.model import Config
    from kuvasz.lake.iceberg.lake import IcebergLake
    from kuvasz.state.ports import ClusterMember, LeaseHolder

_log = EventLog(__name__)

#: What each role does once it has its lease, as the others see it.
DOES: Final = {ClusterRole.ALL: "replicates", ClusterRole.READ: "reads", ClusterRole.APPLY: "applies"}

#: What to do about a process with another map that lives.
LIVES: Final = "give both the same map: each reads its own file again every two seconds, or with `kuvasz reload`"

_LOOK_S: Final = 0.2

#: Looks between two readings of a map that differs.
_READ_EVERY: Final = 10


class Standby:
    """A process until its turn comes.

    Args:
        loaded: What it was started with.
        member: Its place in the cluster, which it has joined.
    """

    def __init__(self, loaded: Loaded, member: ClusterMember) -> None:
        self.loaded = loaded  #: as its map's file was read last
        self.holder: LeaseHolder | None = None  #: who replicates meanwhile
        self.differs = False  #: the holder has another map
        self._does = DOES[loaded.config.cluster.role]
        self._digest = map_digest(loaded.config)
        self._member = member
        self._looks = 0
        self._silent = 0
        self._gone: str | None = None  #: who had another map, and was not heard of since

    @property
    def node(self) -> str:
        """This process's name."""
        return self._member.node

    async def wait(self, stop: asyncio.Event) -> IcebergLake | None:
        """Wait for the turn, and return the lake, ready for it; None if it was stopped before.

        Raises:
            LakeError: Catalog or storage do not answer: nothing could be taken over.
            ConfigError: There is no Java that will do, or no AWS region.
        """
        from kuvasz.source.warmup import warm

        with _one_thread() as pool:
            loop = asyncio.get_running_loop()
            made, _ = await asyncio.gather(loop.run_in_executor(pool, self._prepared), asyncio.to_thread(warm))
            if await self._turn(stop, pool):
                return made
            made.engine.close()
            return None

    async def wait_to_read(self, stop: asyncio.Event) -> bool:
        """Wait for the turn of who only reads: there is nothing to be made ready; return whether it has come."""
        with _one_thread() as pool:
            return await self._turn(stop, pool)

    async def _turn(self, stop: asyncio.Event, pool: concurrent.futures.Executor) -> bool:
        while not stop.is_set():
            if await asyncio.get_running_loop().run_in_executor(pool, self._take):
                _log.tell(Event.LEASE_TAKEN, node=self.node, was_killed=self._member.was_killed)
                return True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await stop.wait()
        return False

    def _prepared(self) -> IcebergLake:
        from kuvasz.lake.iceberg.lake import IcebergLake

        config = self.loaded.config
        made = IcebergLake(config, state_of(config).witness, owners=table_owners(config))
        made.warm_up()
        return made

    def _take(self) -> bool:
        """Take the lease if it is free; return whether it was."""
        try:
            if self.differs and not self._is_alike():
                return False
            holder = self._member.take(self._does, self._digest)
            self._silent = 0
            if holder is not None:
                self._see(holder)
        except StateError as error:
            if self._silent % _READ_EVERY == 0:
                _log.tell(Event.COORDINATOR_SILENT, reason=str(error))
            self._silent += 1
            return False
        return holder is None

    def _see(self, holder: LeaseHolder) -> None:
        if self.holder is None or self.holder.node != holder.node:
            _log.tell(Event.STANDING_BY, node=self.node, holder=holder.node, since=holder.since)
        self.holder = holder
        if holder.does in DOES.values() and holder.map_digest != self._digest and not holder.is_late:
            self.differs, self._looks = True, 0
            if not self._is_alike():
                _log.tell(Event.MAP_DIFFERS, node=self.node, holder=holder.node, hint=LIVES)

    def _is_alike(self) -> bool:
        """Whether the map is the holder's by now: either may have been read anew, and this one's is, now and then.

        One that was stopped in order leaves its place to whichever map comes.
        """
        self._looks += 1
        if self._looks % _READ_EVERY != 1:
            return False
        holder = self._member.holder()
        try:
            again = load.again(self.loaded)
        except ConfigError as error:
            _log.tell(Event.MAP_REFUSED, file=_place(self.loaded), reason=str(error))
            return False
        digest = map_digest(again.config)
        if holder is not None and digest != holder.map_digest:
            if holder.is_late and self._gone != holder.node:
                _log.tell(Event.MAP_DIFFERS, node=self.node, holder=holder.node, hint=gone(holder.node))
            self._gone = holder.node if holder.is_late else None
            return False
        if (held := _read_at_start(again.config, self.loaded.config)) is not None:
            _log.tell(Event.MAP_REFUSED, file=_place(self.loaded), reason=f"{held} is read by a start alone")
            return False
        self.loaded, self._digest, self.differs = again, digest, False
        return True


def _one_thread() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="standby")


def _place(loaded: Loaded) -> str:
    return "no file" if loaded.store is None else loaded.store.place


def _read_at_start(after: Config, before: Config) -> str | None:
    """Return a section that is otherwise now, and that what was prepared goes by; None if there is none."""
    names = [name for name in SECTIONS if name not in {"map", "server", "cuts", "copy"}]
    return next((name for name in names if getattr(after, name) != getattr(before, name)), None)


async def tell_map(app: App, member: ClusterMember) -> None:
    """Let the others know which map is in use, whenever another one is, until cancelled."""
    known = None
    while True:
        if app.config is not known:
            known = app.config
            member.has_map(map_digest(known))
        await asyncio.sleep(_LOOK_S)


def gone(node: str) -> str:
    """Return what to do about a process with another map that is not heard of any more."""
    return f"start {node} again, or give this process its map; if it is gone for good: kuvasz cluster forget {node}"


def map_digest(config: Config) -> str:
    """Return what tells maps apart that say otherwise what is replicated, and where to.

    An option that has its default says nothing: one process may be of a version that knows more of them.
    """
    said: Any = config.model_dump(mode="json", include={"lake", "databases"}, exclude_defaults=True)
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


__all__ = ["DOES", "LIVES", "Standby", "gone", "map_digest", "tell_map"]
