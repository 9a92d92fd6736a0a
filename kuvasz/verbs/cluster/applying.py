"""A process that applies: which groups of the map are its share, taken and given back while it runs.

looked at ─> what is not its share: ended, and given back ─> what nobody has: taken, and begun
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from kuvasz.config import load
from kuvasz.config import sources as config_sources
from kuvasz.errors import KuvaszError, MapBusy, StateError
from kuvasz.events import Event, EventLog
from kuvasz.state.tables import State
from kuvasz.sync import group_shares
from kuvasz.sync.group_shares import GroupClaims, GroupShare
from kuvasz.verbs.cluster import standby
from kuvasz.verbs.cluster.standby import map_digest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kuvasz.admin.live_map import LiveMap
    from kuvasz.app import App
    from kuvasz.config.load import Loaded
    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source
    from kuvasz.state.shares.ports import GroupHolders, SharedGroups

_log = EventLog(__name__)

#: Seconds between two looks at who has what.
_LOOK_S: Final = 0.2

#: Seconds between two readings of a map that differs from that of the others.
_READ_EVERY_S: Final = 2.0

#: The same of what others have seen that patterns may take in, for each source, the least and the most.
_SEEN_S, _LEAST_SEEN_S, _MOST_SEEN_S = 0.01, 2.0, 30.0


class GroupsApplied(GroupClaims):
    """The share of one process.

    Args:
        holders: Where it is known who applies what.
    """

    def __init__(self, holders: GroupHolders) -> None:
        self._holders = holders
        self._shared: SharedGroups | None = None
        self._map: tuple[Config, str, Mapping[str, str], Mapping[str, int]] | None = None  #: as it was looked at last
        self._groups: dict[str, str] = {}  #: source -> its group, of all maps that were looked at
        self._first: frozenset[str] = frozenset()
        self._tidied: str | None = None  #: the map whose sources alone are ordered; None: nobody has seen to that
        self._told: str | None = None  #: who has another map
        self._read_at = 0.0
        self._seen_at = time.monotonic()

    # What is asked when the map changes

    @property
    @override
    def groups(self) -> frozenset[str]:
        """See `GroupClaims.groups`."""
        return self._first

    @property
    @override
    def has_all(self) -> bool:
        """See `GroupClaims.has_all`."""
        assert self._map is not None
        return self._first == self._map[2].keys()

    @property
    @override
    def is_alone(self) -> bool:
        """See `GroupClaims.is_alone`."""
        return self._seen.nodes.keys() <= {self._seen.node}

    @property
    def _seen(self) -> SharedGroups:
        assert self._shared is not None, "it is looked at first"
        return self._shared

    def _known(self, config: Config) -> tuple[str, Mapping[str, str], Mapping[str, int]]:
        """Return what tells a map from others, the units of its groups, and how many targets those have."""
        if self._map is None or self._map[0] is not config:
            mapped = self._resolved(config)
            self._map = config, map_digest(config), group_shares.units_of(mapped), group_shares.targets_of(mapped)
        return self._map[1:]

    def _resolved(self, config: Config) -> Sequence[Source]:
        mapped = config_sources.resolve(config)
        self._groups |= {source.name: source.database for source in mapped}
        return mapped

    def _mine(self) -> set[str]:
        return {group for group, one in self._seen.held.items() if one.node == self._seen.node and one.lives}

    @override
    def planned(self, config: Config) -> frozenset[str]:
        """See `GroupClaims.planned`."""
        mapped = self._resolved(config)
        units, digest = group_shares.units_of(mapped), map_digest(config)
        share = group_shares.share_of(_by_one_map(self._seen, digest), units, digest)
        return group_shares.whole(units, self._mine() | set(share.taken))

    @override
    def claim(self, groups: frozenset[str]) -> None:
        """See `GroupClaims.claim`."""
        if new := groups - self._mine():
            assert self._map is not None
            got = self._holders.hold(dict.fromkeys(new, 0), self._map[1])  # the next look says what they have
            if not new <= set(got):
                raise MapBusy("another process has taken a group meanwhile", hint="try it again in a moment")

    @override
    def elsewhere(self, sources: Collection[str], config: Config) -> Collection[str]:
        """See `GroupClaims.elsewhere`."""
        shared, digest = self._holders.shared(), map_digest(config)
        others = {
            group for group, one in shared.held.items()
            if one.lives and one.node != shared.node and one.map != digest
        }  # fmt: skip
        return [name for name in sources if self._groups.get(name) in others]

    @override
    def follow(self, config: Config) -> None:
        """See `GroupClaims.follow`."""
        shared, digest = self._holders.shared(), map_digest(config)
        targets = group_shares.targets_of(self._resolved(config))
        mine = [group for group, one in shared.held.items() if one.node == shared.node and one.lives]
        if held := {group: targets[group] for group in mine if group in targets}:
            self._holders.hold(held, digest)

    # Its life

    def begin(self, config: Config) -> None:
        """Take what is its share at a start; blocks.

        Raises:
            StateError: The coordinator does not answer.
        """
        self._holders.open()
        shared = self._shared = self._holders.shared()
        digest, units, targets = self._known(config)
        if group_shares.other_map(shared, digest) is None:
            taken = group_shares.share_of(shared, units, digest).taken
            if taken and self._holders.hold({group: targets[group] for group in taken}, digest):
                self._shared = self._holders.shared()
        self._first = group_shares.whole(units, self._mine())
        self._tidied = digest if self.is_alone else None
        _tell_taken(self._first)

    async def run(self, app: App, live_map: LiveMap) -> None:
        """Have an application apply its share, until cancelled."""
        while True:
            is_more = False
            if app.phase == "running":
                try:
                    async with live_map.turn:
                        is_more = await self._look(app)
                    if not is_more:
                        await self._see_tables(app)
                        await self._follow(app, live_map)
                except (StateError, MapBusy):
                    pass  # the heartbeat tells, and ends the process in time; or it is tried again
                except KuvaszError as error:
                    _log.tell(Event.MAP_REFUSED, by="the cluster", error=str(error))
                    await asyncio.sleep(_READ_EVERY_S)
                except Exception:  # noqa: BLE001 (the owner of the task: the next look may be a better one)
                    _log.tell(Event.BUG_IN_MAP)
                    await asyncio.sleep(_READ_EVERY_S)
            if not is_more:
                await asyncio.sleep(_LOOK_S)

    def end(self) -> None:
        """Give back all that it has, of which nothing is under way any more: whichever map comes, goes on; blocks."""
        with contextlib.suppress(StateError):  # else it is taken as what one had that died
            self._shared = self._holders.shared()
            self._holders.release(sorted(self._mine()))

    async def _look(self, app: App) -> bool:
        """Do what is to be done by now; return whether there is more to do at once."""
        if app.is_changing:
            return False
        shared = self._shared = await asyncio.to_thread(self._holders.shared)
        digest, units, targets = await asyncio.to_thread(self._known, app.config)
        if shared.node not in shared.nodes:
            return False  # it is late itself
        mine = self._mine()
        stale = {
            group: targets[group] for group in mine & targets.keys()
            if (shared.held[group].map, shared.held[group].targets) != (digest, targets[group])
        }  # fmt: skip
        if stale:
            await asyncio.to_thread(self._holders.hold, stale, digest)
            return True
        if group_shares.other_map(shared, digest) is not None:
            return False
        share = group_shares.share_of(shared, units, digest)
        done = await self._give(app, share, mine - units.keys(), drains=shared.nodes[shared.node].drains)
        done |= await self._take(app, share, units, mine)
        app.is_shared_out = not done
        if not done and self._tidied != digest:
            # Where several began at once none of them was alone; and nobody lets go of what nobody had.
            if shared.node == min(shared.nodes):
                await asyncio.to_thread(app.keep_orders)
            self._tidied = digest
        return done

    async def _give(self, app: App, share: GroupShare, left: Collection[str], *, drains: bool) -> bool:
        """Give back what is not its share, and what is in the map no more; return whether there was any of it."""
        given = set(share.given)
        assert app.groups is not None
        assert self._map is not None
        if not drains:  # those that go with one of which a table is copied wait for it, too: nobody applies one alone
            units = self._map[2]
            copying = {units.get(group) for group in _copying(app)}
            given = {group for group in given if units[group] not in copying}
        if given & app.groups and not await app.apply(app.groups - given):
            return False
        if gone := {*given, *left} - app.groups:
            await asyncio.to_thread(self._holders.release, sorted(gone))
            for group in sorted(gone & set(share.given)):
                _log.tell(Event.GROUP_GIVEN_BACK, group=group)
        return bool(gone)

    async def _take(self, app: App, share: GroupShare, units: Mapping[str, str], mine: set[str]) -> bool:
        """Take what is its share, and apply what it has as a whole; return whether there was any of it."""
        assert self._map is not None
        _, digest, _, targets = self._map
        got: set[str] = set()
        if share.taken:
            given = {group: targets[group] for group in share.taken}
            got = set(await asyncio.to_thread(self._holders.hold, given, digest))
        held = group_shares.whole(units, (mine | got) - set(share.given))
        kept = frozenset((app.groups or frozenset()) & set(share.given))  # what is being copied
        if held | kept != app.groups:
            _tell_taken((held | kept) - (app.groups or frozenset()))
            await app.apply(held | kept)
        return bool(got)

    async def _see_tables(self, app: App) -> None:
        """Learn now and then what others have seen: a table of theirs may have a target that is fed here as well."""
        every_s = min(max(_LEAST_SEEN_S, _SEEN_S * len(self._groups)), _MOST_SEEN_S)
        if any(group.patterns for group in app.config.databases) and time.monotonic() >= self._seen_at + every_s:
            self._seen_at = time.monotonic()
            await asyncio.to_thread(app.patterns.read_again)

    async def _follow(self, app: App, live_map: LiveMap) -> None:
        """Say that others have another map, and go by one's own file once that is theirs."""
        shared = self._seen
        digest = self._known(app.config)[0]
        left = group_shares.left_by(shared, digest)
        other = group_shares.other_map(shared, digest) or left
        if other != self._told and other is not None:
            hint = standby.gone(other) if other == left else standby.LIVES
            _log.tell(Event.MAP_DIFFERS, node=shared.node, holder=other, hint=hint)
        self._told = other
        if other is None or live_map.loaded is None or time.monotonic() < self._read_at + _READ_EVERY_S:
            return
        self._read_at = time.monotonic()
        wanted = {one.map for one in shared.held.values() if one.node == other}
        with contextlib.suppress(KuvaszError):  # a faulty one; it is in the log, or read again
            if map_digest((await asyncio.to_thread(_again, live_map.loaded)).config) in wanted - {digest}:
                # By `watch` the other one may have taken it by itself: perhaps half a map, that a person is writing.
                may_drop = False if app.config.map.watch else None
                await live_map.reload(f"the cluster ({other})", may_drop=may_drop)


def _again(loaded: Loaded) -> Loaded:
    return load.again(loaded)


def _by_one_map(shared: SharedGroups, digest: str) -> SharedGroups:
    """Return the same as if all who live had a map by now that they are about to have."""
    nodes = {name: dataclasses.replace(one, map=digest) for name, one in shared.nodes.items()}
    return dataclasses.replace(shared, nodes=nodes)


def _copying(app: App) -> set[str]:
    """Return the groups of which a table is being copied just now."""
    copying = {one.database for one in app.states.snapshot() if one.state is State.COPYING}
    return {sync.mapped.database for sync in app.sources if sync.source.name in copying}


def _tell_taken(groups: Collection[str]) -> None:
    if groups:
        _log.tell(Event.GROUPS_TAKEN, groups=sorted(groups))


__all__ = ["GroupsApplied"]
