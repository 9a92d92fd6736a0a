"""A cluster does without its store or its coordinator for a while, under load: nothing is lost or doubled.

What is confirmed to a source is staged, at any moment; afterwards the lake is equal to the sources in PyIceberg,
DuckDB and Spark, and neither objects nor rows of the coordinator are left.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.support.apart import Roles
from tests.support.load import Load
from tests.support.postgres import Database, Server, create_database, new_data_folder
from tests.support.process import Process
from tests.support.proxy import Proxy, proxy
from tests.support.stores import S3
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

_CONFIRMED = (
    "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots"
    " WHERE database = current_database() AND slot_name LIKE 'kuvasz%' AND NOT temporary"
)
_STAGED = "SELECT source, lsn FROM kuvasz.log_source"

#: Transactions that the sources bring while something is away, at least.
_MEANWHILE = 150


class Watcher:
    """Looks all the time whether anything was confirmed that is not staged. A context manager.

    Args:
        roles: Whose sources and coordinator.
    """

    def __init__(self, roles: Roles) -> None:
        self._roles = roles
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.looks = 0  #: with an answer of the coordinator
        self.early: list[str] = []

    def confirmed(self) -> dict[str, int]:
        """How far each source was told that all is safe."""
        return {
            f"shop_{sid}": int(database.execute(_CONFIRMED)[0][0]) for sid, database in self._roles.sources.items()
        }

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            told = self.confirmed()  # first: what is staged only grows
            with contextlib.suppress(psycopg.Error):
                staged = dict(self._roles.coordinator.execute(_STAGED))
                self.early += [f"{name}: {lsn:X}, staged {staged[name]:X}" for name, lsn in told.items()
                               if lsn > staged.get(name, lsn)]  # fmt: skip
                self.looks += 1

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class Loads:
    """Sources that change all the time. A context manager."""

    def __init__(self, roles: Roles) -> None:
        self._loads = [Load(database, number) for number, database in enumerate(roles.sources.values())]

    def wait_more(self, count: int = _MEANWHILE) -> None:
        """Wait until each source has brought so many transactions more."""
        goals = [load.transactions + count for load in self._loads]
        wait_until(
            lambda: all(load.transactions >= goal for load, goal in zip(self._loads, goals, strict=True)),
            "the sources go on",
        )

    def __enter__(self) -> Loads:
        for load in self._loads:
            load.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for load in self._loads:
            load.stop()


def wait_held(watcher: Watcher, loads: Loads) -> None:
    """Wait until nothing more is confirmed, whatever the sources bring: what was staged before may be told late."""

    def is_held() -> bool:
        before = watcher.confirmed()
        loads.wait_more()
        return watcher.confirmed() == before

    wait_until(is_held, "nothing is confirmed any more")


def wait_confirmed(watcher: Watcher, roles: Roles) -> None:
    """Wait until more is confirmed of each source than now."""
    before = watcher.confirmed()
    roles.apply.wait_until(
        lambda: all(lsn > before[name] for name, lsn in watcher.confirmed().items()), "more is confirmed"
    )


def assert_whole(roles: Roles, watcher: Watcher, session: object) -> None:
    roles.wait_applied()
    assert watcher.looks > 20
    assert not watcher.early
    roles.wait_empty()
    assert len(roles.apply.found("copied")) in {0, roles.copies}, "nothing is copied again"
    roles.read.terminate()
    roles.apply.terminate()
    roles.assert_equal(session)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of the coordinator alone."""
    made = Server(new_data_folder())
    made.start()
    yield made
    with contextlib.suppress(Exception):  # a test may have left it stopped
        made.stop("immediate")
    made.remove()


@pytest.fixture
def way(s3: S3) -> Iterator[Proxy]:
    """The way to the store."""
    with proxy(int(s3.endpoint.rpartition(":")[2])) as made:
        yield made


def test_a_store_that_refuses_swallows_and_answers_late(
    two_sources: dict[str, Database], coordinator: Database, new_process: Callable[..., Process], s3: S3, way: Proxy,
    spark_session: object,
) -> None:  # fmt: skip
    roles = Roles(two_sources, coordinator, new_process, s3, f"http://127.0.0.1:{way.port}")
    roles.start()
    with Watcher(roles) as watcher, Loads(roles) as loads:
        roles.committed()
        way.is_refusing = True
        way.cut()
        roles.read.wait_event("staging_failed")
        wait_held(watcher, loads)
        way.is_refusing = False
        wait_confirmed(watcher, roles)
        # Half-open: what is asked gets no answer, and nobody is told.
        way.is_swallowing = True
        wait_held(watcher, loads)
        way.is_swallowing = False
        way.cut()
        wait_confirmed(watcher, roles)
        way.delay_s = 0.4
        for _ in range(3):
            wait_confirmed(watcher, roles)
        way.delay_s = 0.0
        roles.committed()
        assert roles.read.is_running
        assert roles.apply.is_running
    assert_whole(roles, watcher, spark_session)


def test_a_coordinator_that_is_started_again_at_once(
    two_sources: dict[str, Database], server: Server, new_process: Callable[..., Process], spark_session: object
) -> None:
    roles = Roles(two_sources, create_database(server), new_process, lease_s=20)
    roles.start()
    with Watcher(roles) as watcher, Loads(roles) as loads:
        for mode in ("fast", "immediate", "immediate"):
            roles.committed()
            server.restart(mode)
            wait_confirmed(watcher, roles)
            loads.wait_more()
        assert roles.read.is_running
        assert roles.apply.is_running
    assert not roles.apply.found("lease_lost")
    assert_whole(roles, watcher, spark_session)


def test_a_coordinator_that_is_away_for_longer_than_a_lease(
    two_sources: dict[str, Database], server: Server, new_process: Callable[..., Process], spark_session: object
) -> None:
    """Who cannot tell whether another one took over ends; a supervisor starts it again until there is an answer."""
    roles = Roles(two_sources, create_database(server), new_process)
    roles.start()
    with Watcher(roles) as watcher, Loads(roles) as loads:
        roles.committed()
        server.stop("immediate")
        wait_held(watcher, loads)
        assert roles.read.wait() == 1, roles.read.report()
        assert roles.apply.wait() == 1, roles.apply.report()
        server.start()
        begin = time.monotonic()
        roles.start_read()
        roles.apply.start()
        wait_confirmed(watcher, roles)
        print(f"confirmed again after {time.monotonic() - begin:.1f} s")
        roles.committed()
    assert_whole(roles, watcher, spark_session)
