"""What every store of a map owes (`kuvasz.config.written.map_store`), and the API that changes it wherever it is."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from kuvasz.admin import live_map
from kuvasz.admin.live_map import LiveMap
from kuvasz.config.load import load
from kuvasz.config.written.map_store import NOTHING, MapStore, digest_of
from kuvasz.errors import ConfigError, MapUnwritten
from kuvasz.state.maps import database_map
from kuvasz.state.maps.database_map import KEPT, LAYOUT
from kuvasz.state.maps.named import named
from tests.support.postgres import Database
from tests.support.writable_world import WritableWorld

#: With a byte-order mark, both line ends, and what is beyond ASCII and 16 bits.
TEXT = "\ufeff# é 🐕\r\ndatabases: []\n\n# the end"


@pytest.fixture(params=["file", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], MapStore]:
    """Return the store, as another process opens it."""
    if request.param == "postgres":
        text = request.getfixturevalue("database").url
    else:
        text = str(tmp_path / "kept.yaml") if request.param == "file" else f"sqlite:{tmp_path / 'map.db'}"
    return lambda: named(text)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], MapStore]:
    """Return the store, if it is a database."""
    is_postgres = request.param == "postgres"
    text = request.getfixturevalue("database").url if is_postgres else f"sqlite:{tmp_path / 'map.db'}"
    return lambda: named(text)


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "a-secret")


def digest(text: str) -> str:
    return digest_of(text.encode())


def test_a_store_has_nothing_until_something_is_put_there(opened: Callable[[], MapStore]) -> None:
    store = opened()
    assert (store.is_empty(), store.stamp()) == (True, None)
    with pytest.raises(ConfigError, match=r"there is no map|no such file"):
        store.raw()
    with pytest.raises(ConfigError):
        store.exchange(TEXT, digest("something"))
    store.exchange(TEXT, NOTHING)
    assert (store.is_empty(), opened().raw(), opened().text(digest(TEXT))) == (False, TEXT.encode(), TEXT)


def test_who_knows_another_text_is_refused_and_changes_nothing(opened: Callable[[], MapStore]) -> None:
    first, second = opened(), opened()
    first.exchange("one", NOTHING)
    for known in (NOTHING, digest("two")):
        with pytest.raises(ConfigError, match="somebody changed it since it was read"):
            second.exchange("mine", known)
    with pytest.raises(ConfigError, match="somebody changed it since it was read"):
        second.text(digest("two"))
    second.exchange("two", digest("one"))
    with pytest.raises(ConfigError, match="somebody changed it since it was read"):
        first.exchange("mine", digest("one"))
    assert first.raw() == b"two"


def test_the_text_before_stays(opened: Callable[[], MapStore]) -> None:
    store = opened()
    for text, before in (("one", NOTHING), ("two!", digest("one")), ("one", digest("two!"))):
        store.exchange(text, before)
    found = opened().versions()
    assert [(one.digest, one.size) for one in found][:2] == [(digest("one"), 3), (digest("two!"), 4)]
    for one in found:
        assert one.number == 0 or digest_of(store.raw(one.number)) == one.digest
    with pytest.raises(ConfigError, match="version"):
        store.raw(99)


def test_its_stamp_tells_that_it_was_written(opened: Callable[[], MapStore]) -> None:
    store = opened()
    store.exchange("one", NOTHING)
    known = store.stamp()
    assert store.stamp() == known
    opened().exchange("two", digest("one"))
    assert store.stamp() != known


def test_of_many_who_write_at_once_none_is_overwritten_unseen(opened: Callable[[], MapStore]) -> None:
    """Each adds a line to what it has read, and tries again when somebody was quicker: no line is lost."""
    opened().exchange("", NOTHING)
    together = threading.Barrier(4)

    def write(number: int) -> int:
        store, refused = opened(), 0
        together.wait()
        while True:
            text = store.raw().decode()
            try:
                store.exchange(f"{text}{number}\n", digest(text))
            except ConfigError:
                refused += 1
            else:
                return refused

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert sorted(opened().raw().decode().split()) == ["0", "1", "2", "3"]


def test_places_of_options_begin_with_where_the_map_is(opened: Callable[[], MapStore]) -> None:
    store = opened()
    store.exchange("databases:\n- {database: a@b, urs: []}", NOTHING)
    with pytest.raises(ConfigError) as caught:
        load(store, {})
    assert caught.value.message.startswith(f"{store.place}:2:")


def test_the_api_changes_one_entry_and_leaves_all_else(opened: Callable[[], MapStore], tmp_path: Path) -> None:
    world = WritableWorld(tmp_path, store=opened())
    before = world.text
    given = {"db_id": 1, "sid": "de", "url": "postgresql://repl:pw@de1/shop"}
    status, shown = world.ask("/api/url", body=given)
    assert (status, shown["id"], shown["url"]) == (200, 3, "postgresql://repl:***@de1/shop")
    entry = '  - {url: "postgresql://repl:pw@de1/shop", sid: de}\n'
    assert world.text == before.replace("    sid: us\n", f"    sid: us\n{entry}")
    assert '"postgresql://repl:${PW}@eu1/shop"' in opened().raw().decode(), "references stay what they are"
    assert [one.name for one in world.taken[-1].added] == ["shop_de"]
    assert world.ask("/api/url/3", method="DELETE")[0] == 200
    assert world.text == before


def test_what_somebody_else_wrote_meanwhile_is_not_overwritten(
    opened: Callable[[], MapStore], tmp_path: Path
) -> None:  # fmt: skip
    world = WritableWorld(tmp_path, store=opened())
    other = world.text.replace("# the end", "# mine")
    opened().exchange(other, digest(world.text))
    status, refused = world.ask("/api/db", body={"name": "blog"})
    assert (status, world.text) == (409, other)
    assert "somebody changed it since it was read" in refused["error"]
    assert world.ask("/api/map/reload")[0] == 202


def test_what_another_program_writes_is_taken_over_where_the_map_is_watched(
    opened: Callable[[], MapStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_map, "_LOOK_S", 0.05)
    monkeypatch.setattr(live_map, "_STILL_S", 0.1)
    world = WritableWorld(tmp_path, store=opened())
    watched = world.text.replace("map: {", "map: {watch: true, ")
    world.store.exchange(watched, digest(world.text))
    world.loaded = load(world.store)
    world.app.config = world.loaded.config

    async def run() -> None:
        watching = asyncio.create_task(LiveMap(world.app, world.loaded).run())
        await asyncio.to_thread(opened().exchange, watched.replace("us1", "us2"), digest(watched))
        async with asyncio.timeout(30):
            while not world.taken:  # noqa: ASYNC110 (it tells nobody)
                await asyncio.sleep(0.02)
        watching.cancel()

    asyncio.run(run())
    assert [one.source.name for one in world.taken[-1].changed] == ["shop_us"]


def test_only_the_last_versions_stay(database_of: Callable[[], MapStore]) -> None:
    store, before = database_of(), NOTHING
    for number in range(KEPT + 2):
        store.exchange(str(number), before)
        before = digest(str(number))
    found = store.versions()
    assert [one.number for one in found] == list(range(KEPT + 2, 2, -1))
    assert all(one.by for one in found)
    assert store.raw(found[-1].number) == b"2"


@pytest.mark.postgres
def test_a_session_that_ended_is_begun_again(database: Database) -> None:
    store = named(database.url)
    store.exchange("one", NOTHING)
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kuvasz map'")
    assert store.raw() == b"one"
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kuvasz map'")
    store.exchange("two", digest("one"))
    assert store.raw() == b"two"


@pytest.mark.postgres
def test_a_role_that_may_only_read_may_not_write(database: Database) -> None:
    named(database.url).exchange("one", NOTHING)
    role = f"reader_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'a-secret'")
    try:
        database.execute(f"GRANT USAGE ON SCHEMA kuvasz TO {role}")
        database.execute(f"GRANT SELECT ON kuvasz.map TO {role}")
        parts = urllib.parse.urlsplit(database.url)
        server = parts.netloc.rpartition("@")[2]
        store = named(parts._replace(netloc=f"{role}:${{PW}}@{server}").geturl())
        assert (store.raw(), "a-secret" in store.secrets) == (b"one", True)
        with pytest.raises(MapUnwritten, match="permission denied"):
            store.exchange("mine", digest("one"))
        assert store.raw() == b"one"
    finally:
        database.execute(f"DROP OWNED BY {role}")
        database.execute(f"DROP ROLE {role}")


def test_a_newer_kuvaszs_row_is_refused(database_of: Callable[[], MapStore], monkeypatch: pytest.MonkeyPatch) -> None:
    store = database_of()
    monkeypatch.setattr(database_map, "LAYOUT", LAYOUT + 1)
    store.exchange("one", NOTHING)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="this kuvasz knows 1"):
        store.raw()
    with pytest.raises(ConfigError, match="this kuvasz knows 1"):
        store.exchange("two", digest("one"))
