"""kuvasz as a library: what the command runs, in a program of one's own.

>>> with Replicator("map.yaml") as replicator:
...     print(replicator.status()["phase"])
running

In a task of a scheduler ``Replicator("map.yaml").run(until_caught_up=True)`` loads what is new and returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import uvloop

from kuvasz.admin import views
from kuvasz.admin.erasures.erasure_book import ErasureBook
from kuvasz.admin.server import AdminServer, serve
from kuvasz.admin.views import ErrorView
from kuvasz.app import App
from kuvasz.config import load
from kuvasz.config.load import Loaded
from kuvasz.errors import ConfigError, MapMismatch, StateTaken, first_of
from kuvasz.own_thread import THREAD_NAME
from kuvasz.state.maps.named import named
from kuvasz.state.store import state_of
from kuvasz.verbs.maps import patterns
from kuvasz.verbs.served.looks import LOOKS

#: Seconds between two looks whether it runs by now.
_LOOK_S = 0.05

#: Seconds that an answer may take, and threads that ask sources while all ends.
_ANSWER_S = 30.0
_ENDING_S = 30.0

#: Spark has one context in a process.
_only = threading.Lock()


class Replicator:
    """Replicates as ``kuvasz --config`` does, in a thread of its own.

    It owns the state folder while it runs, and serves HTTP as the map says, so that the command's verbs steer it.
    One runs at a time in a process, because Spark does. What it logs are records of the logger ``kuvasz``; who wants
    lines as the command has them calls `kuvasz.log.set_up`.

    Args:
        config: The map's file; or ``sqlite:map.db``, ``postgresql://…``.
        settings: Options that win over it: ``{"pipeline.workers": "4"}``.

    Raises:
        ConfigError: The map is wrong.
    """

    def __init__(self, config: str | os.PathLike[str], settings: Mapping[str, str] | None = None) -> None:
        self._loaded = load.load(named(os.fspath(config)), None, dict(settings or {}))
        if self._loaded.config.cluster.coordinator is not None:
            hint = "run `kuvasz --config …` for it: a process that loses its lease ends at once, and yours should not"
            raise ConfigError("cluster.coordinator: a program of its own cannot be one of a cluster", hint=hint)
        self._app: App | None = None
        self._server: AdminServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._exit_code: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def faults(self) -> list[str]:
        """What the exit code comes from, once it ended by itself: each source's, or table's, error with its hint."""
        return [] if self._app is None else [str(error) for error in self._app.faults]

    def run(self, *, until_caught_up: bool = False) -> int:
        """Replicate until `stop` is called from another thread; return the command's exit code.

        Args:
            until_caught_up: End by itself when all that the sources had at the start is in the lake.

        Raises:
            KuvaszError: It cannot start, or go on.
        """
        self.start(until_caught_up=until_caught_up)
        try:
            self.wait()
        except BaseException:  # as Ctrl-C
            self.stop()
            raise
        return self._ended()

    def start(self, *, until_caught_up: bool = False) -> None:
        """Begin, and return once it runs; sources are connected and copied after that.

        Args:
            until_caught_up: See `run`.

        Raises:
            StateTaken: Somebody else owns the state folder, or another replicator runs in this process.
            KuvaszError: It cannot start.
        """
        if not _only.acquire(blocking=False):
            hint = "stop it first, or run this one in a process of its own"
            raise StateTaken("a replicator runs in this process already", hint=hint)
        self._app, self._error, self._exit_code = None, None, None
        self._thread = threading.Thread(
            target=self._live, args=(until_caught_up,), name="replicator", daemon=True
        )  # fmt: skip
        self._thread.start()
        while self.is_running and self._is_starting():
            time.sleep(_LOOK_S)
        if not self.is_running:
            self._ended()

    def _is_starting(self) -> bool:
        return self._app is None or self._app.phase == "starting"

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; return whether it has come.

        Args:
            timeout_s: For how long; None: as long as it takes.
        """
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.is_running

    def stop(self) -> int:
        """Stop as SIGTERM does, which takes less than 30 s: what is in hand becomes durable; return the exit code.

        Raises:
            KuvaszError: It could not go on before.
        """
        app, loop = self._app, self._loop
        if self.is_running and app is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself: the loop is closed
                loop.call_soon_threadsafe(app.stop)
        self.wait()
        return self._ended()

    def status(self) -> dict[str, Any]:
        """Return what ``/status`` and ``kuvasz status --json`` say.

        Raises:
            ConfigError: It does not run.
        """
        server, loop = self._running()
        errors = ErrorView(redact=server.redact, is_trusted=True)
        shown = server.observer.show(lambda now: views.status(now, errors))
        return asyncio.run_coroutine_threadsafe(shown, loop).result(_ANSWER_S)

    def reload(self) -> dict[str, Any]:
        """Go by what the map's file has now, and return what that has otherwise, as ``kuvasz reload --json`` does.

        Raises:
            ConfigError: It does not run; or the map is faulty, or cannot follow without a restart.
        """
        server, loop = self._running()
        found = asyncio.run_coroutine_threadsafe(server.live_map.reload("the program"), loop).result(_ANSWER_S)
        return {"verb": "reload", **found.as_json()}

    def _running(self) -> tuple[AdminServer, asyncio.AbstractEventLoop]:
        server, loop = self._server, self._loop
        if not self.is_running or server is None or loop is None:
            raise ConfigError("this replicator does not run", hint="start() it first")
        return server, loop

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # In its thread

    def _live(self, until_caught_up: bool) -> None:  # noqa: FBT001 (of a thread's arguments)
        try:
            owner = state_of(self._loaded.config).own("replicates")
            owner.take()
            try:
                self._exit_code = uvloop.run(self._replicate(until_caught_up=until_caught_up))
            finally:
                if are_seen_off():
                    owner.give_back()
        except BaseException as error:  # noqa: BLE001 (whoever waits is told)
            self._error = error
        finally:
            _only.release()

    async def _replicate(self, *, until_caught_up: bool) -> int:
        self._loop = asyncio.get_running_loop()
        self._loaded = await asyncio.to_thread(patterns.kept, self._loaded)
        app = App(self._loaded.config)

        def served(server: AdminServer) -> None:
            self._server, self._app = server, app

        try:
            return await replicate(self._loaded, app, until_caught_up=until_caught_up, on_served=served)
        finally:
            if self._server is not None and self._server.live_map.loaded is not None:
                self._loaded = self._server.live_map.loaded  # a second life goes by the same map
            self._server = None  # its observer goes with it: there is nothing to be asked any more

    def _ended(self) -> int:
        if self._error is not None:
            found = first_of(self._error) if isinstance(self._error, BaseExceptionGroup) else None
            raise self._error if found is None else found
        return self._exit_code or 0


def are_seen_off() -> bool:
    """Whether all threads have ended that may outlive the loop; if not, the process owns the state folder on."""
    deadline = time.monotonic() + _ENDING_S
    late = [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]
    for thread in late:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in late)


async def replicate(
    loaded: Loaded,
    app: App,
    *,
    until_caught_up: bool = False,
    on_served: Callable[[AdminServer], None] = lambda _: None,
    erasures: ErasureBook | None = None,
) -> int:
    """Run an application with its HTTP server; return the exit code. Whoever calls owns the state folder.

    Args:
        loaded: The application's configuration.
        app: The application.
        until_caught_up: See `App.run`.
        on_served: Told of the server when there is one.
        erasures: Notes erasures that are asked for; the application ends then, and whoever calls carries them out.

    Raises:
        KuvaszError: It cannot start, or go on; of what does not fit a source in the map with its place there.
    """
    async with serve(app, state_of(loaded.config), loaded.secrets, loaded, LOOKS, erasures) as server:
        on_served(server)
        try:
            return await app.run(until_caught_up=until_caught_up)
        except* MapMismatch as group:
            error = first_of(group)
            assert isinstance(error, MapMismatch)
            place = loaded.place_of(error.database, error.table, error.option)
            raise ConfigError(f"{place}{error.message}", hint=error.hint) from error


__all__ = ["Replicator", "are_seen_off", "replicate"]
