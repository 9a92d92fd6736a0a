"""One message of a server is harmed, any of a whole start: two others stream on, and then it comes as it is."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import time
from collections.abc import Iterator, Sequence

import pytest

from kuvasz.backoff import Backoff
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.source import conninfo, copy_out
from kuvasz.source.reading.options import ReaderOptions
from kuvasz.state.tables import State
from kuvasz.sync import source_sync
from kuvasz.sync.context import shared
from tests.support import oracle
from tests.support.lake import LakeFolder, Pipeline, group
from tests.support.message_proxy import WAYS, MessageProxy, message_proxy
from tests.support.oracle import Rows, source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.proxy import url_through
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, n int)"
#: Seconds of silence that are taken for the end here, at every door.
SILENCE_S = 10.0
#: Seconds that a write of a good source may take more than usual: who waits for a silent one waits longer.
GRACE_S = 7.0
#: Bad sources that start together where every message is tried.
AT_A_TIME = 16
#: Writes of a bad source at most until the message comes that is harmed.
ROUNDS = 60
#: Messages of the stream with a row.
ROWS = frozenset({"d w I", "d w U", "d w D"})
_numbers = itertools.count(1)


def filled(server: EmbeddedPostgres) -> Database:
    made = create_database(server)
    made.execute(ITEMS)
    made.execute("INSERT INTO items VALUES (1, 1), (2, 2), (3, 3)")
    return made


@dataclasses.dataclass
class Bad:
    """The source whose server is harmed."""

    sid: str
    database: Database
    between: MessageProxy
    written: list[tuple[int, int]] = dataclasses.field(default_factory=list)  #: key of a row, LSN after its commit

    @property
    def named(self) -> str:
        """For failures: what was harmed, and how."""
        return f"{self.sid} ({self.between.way} {self.between.number}: {self.between.harmed[:200]})"

    @property
    def is_unnoticed(self) -> bool:
        """Whether a row of the stream was kept back: nothing that comes with it says that there was one."""
        return self.between.way == "drop" and self.between.harmed.split(" after ")[0] in ROWS

    def write(self) -> None:
        """Insert a row, and change one."""
        key = 100 + len(self.written)
        self.database.execute("INSERT INTO items VALUES (%s, 0)", (key,))
        self.database.execute("UPDATE items SET n = n + 1 WHERE id = 1")
        ((lsn,),) = self.database.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
        self.written.append((key, lsn))

    @property
    def url(self) -> str:
        return url_through(self.database, self.between.port, "sslmode=disable")

    @property
    def confirmed(self) -> int:
        """Up to which LSN its slot is; 0: there is none."""
        found = self.database.execute(
            "SELECT max(confirmed_flush_lsn - '0/0'::pg_lsn)::bigint FROM pg_replication_slots"
            " WHERE database = current_database() AND NOT temporary"
        )
        return int(found[0][0] or 0)


@contextlib.contextmanager
def bad(server: EmbeddedPostgres, way: str = "", number: int = 0, *, is_lasting: bool = False) -> Iterator[Bad]:
    database = filled(server)
    with message_proxy(server.port, way, number, is_lasting=is_lasting) as between:
        yield Bad(f"bad{next(_numbers)}", database, between)
    drop_database(database)


@pytest.fixture
def wells(postgres18: EmbeddedPostgres) -> Iterator[dict[str | None, Database]]:
    made: dict[str | None, Database] = {f"well{number}": filled(postgres18) for number in range(2)}
    yield made
    for database in made.values():
        drop_database(database)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have silence be noticed, and what failed be tried again, within seconds."""
    options = functools.partial(
        ReaderOptions, silence_timeout_s=SILENCE_S, status_interval_s=0.5, first_backoff_s=0.1, last_backoff_s=1.0
    )
    monkeypatch.setattr(shared, "ReaderOptions", options)
    monkeypatch.setattr(source_sync, "Backoff", functools.partial(Backoff, first_s=0.1, last_s=1.0))
    monkeypatch.setattr(conninfo, "ANSWER_S", SILENCE_S)
    monkeypatch.setattr(copy_out, "SILENCE_S", SILENCE_S)


class Scene:
    """A running kuvasz with two good sources, and bad ones that come and go."""

    def __init__(self, folder: LakeFolder, wells: dict[str | None, Database]) -> None:
        self._folder = folder
        self.wells = wells
        self._gone: list[Rows] = []
        self.pipeline = Pipeline(folder.config(self._groups()), folder)

    def _groups(self, *bads: Bad) -> list[dict]:
        (found,) = group(self.wells, {"items": None})
        found["urls"] += [{"url": one.url, "sid": one.sid} for one in bads]
        return [found]

    def has(self, *bads: Bad) -> None:
        """Have these bad ones be in the map, and no others."""
        self._folder.config(self._groups(*bads))
        self.pipeline.take_over()

    def see_off(self, *bads: Bad) -> None:
        """Have only the good ones be in the map; all is in the lake, and what of the bad ones is there stays."""
        self._gone += [source_rows(one.database.url, "items", sid=one.sid) for one in bads]
        rows = [source_rows(database.url, "items", sid=sid) for sid, database in self.wells.items()]
        self.pipeline.assert_equal("items", *rows, *self._gone, key=("sid", "id"))
        self.has()

    def lag(self) -> float:
        """Seconds until a write of each good one is in the lake."""
        begin = time.monotonic()
        for sid, database in self.wells.items():
            database.execute("UPDATE items SET n = n + 1")
            ((most,),) = database.execute("SELECT max(n) FROM items")
            wait_until(lambda: most in {n for _, n in self.rows(str(sid))}, lambda: f"{sid} streams: {self.told()}")  # noqa: B023
        return time.monotonic() - begin

    def rows(self, sid: str) -> list[tuple]:
        """(id, n) of a source, as PyIceberg reads them."""
        found = oracle.lake_rows_seen(self._folder.pyiceberg, "shop.items", catalog=self._folder.catalog)
        return sorted(row[1:] for row in found.select(["sid", "id", "n"]).rows.elements() if row[0] == sid)

    def told(self) -> list[str]:
        return [*self.pipeline.errors(), self.pipeline._end()]

    def of(self, sid: str) -> str:
        """What is said to be wrong with a source, or with its table."""
        view = self.pipeline.app.view()
        told = [one.error for one in view.sources if one.name == f"shop_{sid}"]
        told += [str(one.error) for one in view.tables if one.database == f"shop_{sid}" and one.error]
        return "; ".join(one for one in told if one)

    def assert_kept(self, one: Bad) -> None:
        """What is confirmed to a source is in the lake, or known to lack there."""
        confirmed = one.confirmed
        is_in_error = self.pipeline.states().get((f"shop_{one.sid}", "shop.items")) is State.ERROR
        lacks = is_in_error or self.pipeline.lacks(f"shop_{one.sid}")
        known = {key for key, _ in self.rows(one.sid)}
        lost = [key for key, lsn in one.written if lsn <= confirmed and key not in known]
        assert lacks or not lost, f"{one.sid}: {lost} of {one.written} are confirmed: {confirmed}"

    def mended(self, one: Bad) -> str:
        """Have a source come as it is, and return what a person had to do for it."""
        helped: list[str] = []

        def is_right() -> bool:
            if not one.is_unnoticed:
                self.assert_kept(one)
            state = self.pipeline.states().get((f"shop_{one.sid}", "shop.items"))
            wanted = sorted(one.database.execute("SELECT id, n FROM items"))
            if state is State.ERROR and helped.count("retry") < 20:
                self.pipeline.tell("retry", "shop.items", f"shop_{one.sid}")
                helped.append("retry")
            if state is State.STREAMING and one.is_unnoticed and not helped:
                self.pipeline.tell("resync", "shop.items", f"shop_{one.sid}")
                helped.append("resync")
            return state is State.STREAMING and self.rows(one.sid) == wanted

        told = lambda: f"{one.named} comes: {helped} {self.told()}, {self.rows(one.sid)}"  # noqa: E731
        wait_until(is_right, told)
        return "+".join(dict.fromkeys(helped))


@pytest.fixture
def scene(lake_folder: LakeFolder, wells: dict[str | None, Database]) -> Iterator[Scene]:
    made = Scene(lake_folder, wells)
    with made.pipeline:
        made.pipeline.wait_streaming()
        yield made


def tried(
    scene: Scene, server: EmbeddedPostgres, usual_s: float, harms: Sequence[tuple[str, int]], *, lasts: bool
) -> None:
    """Have as many bad sources as there are harms start beside the good ones, and then be honest."""
    with contextlib.ExitStack() as stack:
        bads = [stack.enter_context(bad(server, way, number, is_lasting=lasts)) for way, number in harms]
        scene.has(*bads)
        lags = [scene.lag()]
        while late := [one for one in bads if not one.between.harmed]:
            assert len(lags) < ROUNDS, f"not so many messages come: {[one.named for one in late]}"
            for one in late:
                one.write()
            lags.append(scene.lag())
        for one in bads if lasts else ():
            named = functools.partial(scene.of, one.sid)
            wait_until(named, lambda one=one: f"status says what is wrong with {one.named}: {scene.told()}")
            print(f"  {one.named}: {named()[:160]!r}", flush=True)
        lags.append(scene.lag())
        print(f"{harms[0]} to {harms[-1]}: usual {usual_s:.1f} s, now {max(lags):.1f} s", flush=True)
        assert max(lags) <= usual_s + GRACE_S, [one.named for one in bads]
        for one in bads:
            one.between.be_honest()
            one.write()
        for one in bads:
            if helped := scene.mended(one):
                print(f"  {one.named}: {helped}", flush=True)
        assert not [error for sid in scene.wells if (error := scene.of(str(sid)))]
        scene.see_off(*bads)


def measured(scene: Scene, server: EmbeddedPostgres) -> tuple[int, float]:
    """How many messages a start has, a row of the stream included; and the usual seconds of a good one's write."""
    with bad(server) as one:
        scene.has(one)
        wait_until(lambda: len(scene.rows(one.sid)) == 3, lambda: f"it is copied: {scene.told()}")
        one.write()
        assert not scene.mended(one)
        found = len(one.between.kinds)
        assert {"R", "D", "H", "W", "d w I"} <= set(one.between.kinds)
        scene.see_off(one)
    return found, max(scene.lag() for _ in range(3))


@pytest.mark.parametrize("lasts", [pytest.param(False, marks=pytest.mark.slow), True], ids=["once", "from then on"])
def test_some_messages_of_a_start(scene: Scene, postgres16: EmbeddedPostgres, lasts: bool) -> None:
    """Each way to harm one, at a message of its own: among questions, where the slot is made, copied, streamed."""
    count, usual_s = measured(scene, postgres16)
    ways = WAYS[::-1] if lasts else WAYS
    harms = [(way, round(count * (number + 0.5) / len(ways))) for number, way in enumerate(ways)]
    tried(scene, postgres16, usual_s, harms, lasts=lasts)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("lasts", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("way", WAYS)
def test_every_message_of_a_start(scene: Scene, postgres16: EmbeddedPostgres, way: str, lasts: bool) -> None:
    """`MESSAGES` has only one of so many be tried."""
    count, usual_s = measured(scene, postgres16)
    numbers = range(1, count + 1, int(os.environ.get("MESSAGES") or 1))
    for begin in range(0, len(numbers), AT_A_TIME):
        some = [(way, number) for number in numbers[begin : begin + AT_A_TIME]]
        tried(scene, postgres16, usual_s, some, lasts=lasts)
