"""The map file of a running kuvasz: read again when a person says so, on SIGHUP, or when it changed.

It is checked as a whole before anything of it is used: a faulty one changes nothing, and says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from kuvasz import log
from kuvasz.admin.entries import replaced_map
from kuvasz.config import load
from kuvasz.config.written import map_references, map_text
from kuvasz.errors import ConfigError, KuvaszError, MapBusy
from kuvasz.events import Event, EventLog

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from kuvasz.app import App
    from kuvasz.config.load import Loaded
    from kuvasz.config.model import Config
    from kuvasz.config.written.map_edit import MapEdit
    from kuvasz.config.written.map_store import MapStore
    from kuvasz.sync.rules.map_difference import MapDifference

#: From the map that runs, checked and as its file is written, to what is to be changed in that.
EditMap: TypeAlias = "Callable[[Config, dict[str, Any]], Sequence[MapEdit]]"

#: What a map would be, looked at before it is one.
ProveMap: TypeAlias = "Callable[[Loaded], None]"

_log = EventLog(__name__)

#: Between two looks at the file, and two attempts while the map before it is still being put into use.
_LOOK_S = 1.0

#: For the change before to be put into use: sources get as long to end.
_SETTLE_S = 30.0

#: A file that is watched is read when nobody has touched it for so long.
_STILL_S = 2.0

#: Before the next attempt where the lake does not answer.
_PAUSE_S = 10.0

#: So many times as long as it took to compare the map, nobody does that again for tables that come and go: whoever
#: makes and drops them has all of it compared.
_REST = 20.0

#: Who asked, where nobody did in person.
_SIGNAL, _FILE, _PATTERN = "SIGHUP", "map.watch", "pattern"


class LiveMap:
    """The map of one application. Methods are called on the loop.

    Args:
        app: The running application.
        loaded: What it was started with; None: from no file, and nothing is read again.
    """

    def __init__(self, app: App, loaded: Loaded | None = None) -> None:
        self._app = app
        self.loaded = loaded  #: the map that runs, as it was read
        self._turn = asyncio.Lock()
        self._signalled = asyncio.Event()
        self._version = app.patterns.version  #: of what patterns were matched with, as the map that runs knows it
        self._rests_until = 0.0  #: before which nobody compares it for that again
        #: told the secrets of a map before anything of it is used
        self.on_secrets: list[Callable[[Iterable[str]], None]] = [log.hide]

    @property
    def turn(self) -> asyncio.Lock:
        """Held by whoever has something else replicated from now on: one at a time."""
        return self._turn

    async def compare(self) -> MapDifference:
        """Return what the file has otherwise than the map that runs; nothing is changed.

        Raises:
            ConfigError: It is faulty, or cannot follow without a restart.
        """
        return await asyncio.to_thread(self._app.difference, (await self._looked()).config)

    async def reload(self, by: str, *, may_drop: bool | None = None) -> MapDifference:
        """Have kuvasz go by what the file has now; return what that has otherwise, while it is put into use.

        Args:
            by: Who asked.
            may_drop: Whether slots and publications of sources go that leave; None: as the map says.

        Raises:
            ConfigError: It is faulty, or cannot follow without a restart: nothing is changed.
            LakeError: The lake does not say what leaves it: nothing is changed.
            MapBusy: The last change is still under way.
        """
        return await self._reload(by, is_person=True, may_drop=may_drop)

    async def change(
        self, by: str, edit: EditMap, *, prove: ProveMap = lambda _: None, may_drop: bool | None = None
    ) -> None:
        """Have the map's file changed, and kuvasz go by it.

        Nothing is changed where what it would be then is faulty, or cannot follow without a restart.

        Args:
            by: Who asked.
            edit: Says what is to be changed, on a thread; whatever it raises ends it.
            prove: Looks at what the map would be, on a thread; whatever it raises ends it.
            may_drop: Whether slots and publications of sources go that leave; None: as the map says.

        Raises:
            ConfigError: The map would be faulty or cannot follow, or somebody else has changed its file.
            LakeError: The lake does not say what leaves it.
            MapUnwritten: The file cannot be written.
            MapBusy: The last change is still under way.
        """
        await self._rewrite(by, functools.partial(self._edited, edit), prove, may_drop=may_drop)

    async def replace(self, by: str, text: str) -> MapDifference | None:
        """Have the map's file get another text, and kuvasz go by it; return what that has otherwise.

        Nothing is changed where it is faulty, or cannot follow without a restart; None: it is the text that is there.

        Args:
            by: Who asked.
            text: The text: what it refers to by ``${…}`` the map refers to already, at that place, and none of it is
                sent elsewhere (`replaced_map`).

        Raises:
            ConfigError: It is faulty or cannot follow, or somebody else has changed the file.
            LakeError: The lake does not say what leaves it.
            MapUnwritten: The file cannot be written.
            MapBusy: The last change is still under way.
        """

        def make(known: Loaded, store: MapStore) -> str | None:
            before = store.text(known.digest)
            map_references.refuse_new(map_text.meaning(before), map_text.meaning(text.removeprefix("\ufeff")))
            return None if text == before else text

        def prove(loaded: Loaded) -> None:
            replaced_map.refuse(self._known().config, loaded.config)

        return await self._rewrite(by, make, prove)

    async def _rewrite(
        self,
        by: str,
        make: Callable[[Loaded, MapStore], str | None],
        prove: ProveMap,
        *,
        may_drop: bool | None = None,
    ) -> MapDifference | None:
        """Have the map's file get what is made of it on a thread, and kuvasz go by that."""
        async with self._turn:
            known = self._known()
            store = known.editable
            await self._settled()
            text = await asyncio.to_thread(make, known, store)
            if text is None:
                return None
            loaded = await asyncio.to_thread(load.with_text, known, text)
            for hide in self.on_secrets:
                hide(loaded.secrets)
            loaded = await self._known_tables(loaded, is_all=False)
            found = await asyncio.to_thread(self._app.difference, loaded.config)
            await asyncio.to_thread(prove, loaded)
            await asyncio.to_thread(self._app.ask_lake, found)
            self._app.refuse_if_changing()  # nothing may refuse it once it is written, but the end of kuvasz
            await asyncio.to_thread(store.exchange, text, known.digest)
            self._take(loaded)
            try:
                self._app.take_over(found, may_drop=may_drop)
            except MapBusy as error:
                raise MapBusy(
                    "kuvasz ends: the change is in the map's file, and counts from the next start on", hint=error.hint
                ) from error
            _log.tell(Event.MAP_CHANGED, by=by, **found.as_json())
            return found

    async def _settled(self) -> None:
        """Wait for the change before to be put into use: programs ask for one after the other."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S):
                while self._app.is_changing:  # noqa: ASYNC110 (it tells nobody)
                    await asyncio.sleep(_LOOK_S / 20)
        self._app.refuse_if_changing()

    def _edited(self, edit: EditMap, known: Loaded, store: MapStore) -> str | None:
        """Return the text of the file after what is to be changed; None if that is nothing."""
        text = store.text(known.digest)
        edits = edit(self._app.config, map_text.meaning(text))
        return map_text.edited(text, edits) if edits else None

    async def _reload(self, by: str, *, is_person: bool, may_drop: bool | None = None) -> MapDifference:
        async with self._turn:
            try:
                self._known()
                self._app.refuse_if_changing()  # before the map is read, which takes its time
                loaded = await self._looked()
                found = await asyncio.to_thread(self._app.difference, loaded.config)
                is_other = not found.is_empty or found.config != self._app.config
                if is_other:
                    await asyncio.to_thread(self._app.ask_lake, found)
                    self._app.take_over(found, may_drop=may_drop if is_person else False)
            except MapBusy:
                raise
            except KuvaszError as error:
                _log.tell(Event.MAP_REFUSED, by=by, error=str(error))
                raise
            self._take(loaded)
            if is_other or is_person:
                _log.tell(Event.MAP_TAKEN, by=by, **found.as_json())
            return found

    def _take(self, loaded: Loaded) -> None:
        before, self.loaded = self.loaded, loaded
        self._app.patterns.tell(loaded.config)
        if before is None or before.config.log.level is not loaded.config.log.level:
            log.set_level(loaded.config.log.level)

    def _known(self) -> Loaded:
        if self.loaded is None:
            raise ConfigError("the map is from no file: it cannot be read again", hint="restart kuvasz to change it")
        return self.loaded

    async def _read(self) -> Loaded:
        begun = await asyncio.to_thread(self._stamp)
        loaded = await asyncio.to_thread(load.again, self._known())
        if begun != await asyncio.to_thread(self._stamp):
            raise ConfigError("the map was written while it was read", hint="have it read again")
        for hide in self.on_secrets:
            hide(loaded.secrets)
        return loaded

    async def _looked(self) -> Loaded:
        """Return what the file has now, with what its patterns take in now."""
        return await self._known_tables(await self._read(), is_all=True)

    async def _known_tables(self, loaded: Loaded, *, is_all: bool) -> Loaded:
        config = await asyncio.to_thread(self._app.patterns.looked, loaded.config, is_all=is_all)
        return dataclasses.replace(loaded, config=config)

    async def _follow_patterns(self) -> None:
        """Take in tables that have come and are like a pattern of the map, and let go of those that are gone.

        The map's file is not read: what a person has written into it since waits for that person.
        """
        async with self._turn:
            self._app.refuse_if_changing()
            version, begin = self._app.patterns.version, time.monotonic()
            config = await asyncio.to_thread(self._app.patterns.applied, self._app.config)
            try:
                found = await asyncio.to_thread(self._app.difference, config)
            except ConfigError as error:
                self._version = version
                _log.tell(Event.MAP_REFUSED, by=_PATTERN, error=str(error))
                raise
            finally:
                now = time.monotonic()
                self._rests_until = now + _REST * (now - begin)
            if not found.is_empty:
                await asyncio.to_thread(self._app.ask_lake, found)
            self._app.take_over(found, may_drop=False)
            self._app.patterns.tell(config)
            self._version = version
            if self.loaded is not None:
                self.loaded = dataclasses.replace(self.loaded, config=config)
            if not found.is_empty:
                _log.tell(Event.MAP_TAKEN, by=_PATTERN, **found.as_json())

    def signal(self) -> None:
        """Have the file read again, as SIGHUP does; what comes of it is in the log."""
        self._signalled.set()

    async def run(self) -> None:
        """Read the file again on a signal, or when it changed and the map says so, until cancelled."""
        read: object = None  # of a file that is watched from the start on nobody knows what has been read
        last, since, is_asked = read, 0.0, False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._signalled.wait()
            is_asked = is_asked or self._signalled.is_set()
            self._signalled.clear()
            is_other = self._version != self._app.patterns.version and time.monotonic() >= self._rests_until
            if is_other and not is_asked:
                await self._is_settled(self._follow_patterns())
                continue
            if not is_asked and not self._app.config.map.watch:
                continue
            now = await asyncio.to_thread(self._stamp)
            if now != last:
                last, since = now, time.monotonic()
            # What is written just now may be half a map, and look like a whole one.
            is_still = time.monotonic() - since >= _STILL_S
            if not is_asked and not (is_still and now != read):
                continue
            if await self._is_settled(self._reload(_SIGNAL if is_asked else _FILE, is_person=is_asked)):
                read, is_asked = now, False

    async def _is_settled(self, change: Coroutine[Any, Any, object]) -> bool:
        """Have the map changed; return whether that was all, or is to be tried again."""
        try:
            await change
        except MapBusy:
            return False
        except ConfigError:  # it is in the log
            return True
        except KuvaszError:  # the lake does not answer
            await asyncio.sleep(_PAUSE_S)
            return False
        except Exception:  # noqa: BLE001 (the owner of the task: the next map may be a better one)
            _log.tell(Event.BUG_IN_MAP)
        return True

    def _stamp(self) -> object:
        """Return what differs when the map was written again, or another one is in its place."""
        return None if self.loaded is None or self.loaded.store is None else self.loaded.store.stamp()


__all__ = ["EditMap", "LiveMap", "ProveMap"]
