from __future__ import annotations

import json
from pathlib import Path

import pytest

from kuvasz.config import load, names, sources
from kuvasz.config.model import Config
from kuvasz.config.patterns.found_tables import SeenTable
from kuvasz.config.sources import Source
from kuvasz.errors import SourceTooLarge
from kuvasz.source.catalog import mappable
from kuvasz.state.memory import MemoryFeeds
from kuvasz.sync import pattern_tables
from kuvasz.sync.pattern_tables import PatternTables


def seen(*tables: str) -> tuple[SeenTable, ...]:
    return tuple(SeenTable(table=names.parse_table(one), has_key=True) for one in tables)


class Servers:
    """What sources answer, and how often they were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has: dict[str, tuple[SeenTable, ...] | None] = {}
        self.asked: list[str] = []
        monkeypatch.setattr(pattern_tables, "_asked", self._ask)
        monkeypatch.setattr(mappable, "load", lambda connection, _: self.has[connection])

    def _ask(self, source: Source) -> tuple[SeenTable, ...] | None:
        self.asked.append(source.name)
        return self.has.get(source.name)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Servers:
    return Servers(monkeypatch)


def config(pattern: str = "public.*", said: object = None, **options: object) -> Config:
    urls = [{"url": f"postgresql://repl@{sid}/shop", "sid": sid} for sid in ("eu", "us")]
    groups = [
        {"database": "shop", "urls": urls, "tables": {pattern: said}, **options},
        {"database": "plain", "urls": [{"url": "postgresql:///plain"}], "tables": {"t": None}},
    ]
    return load.of_text(json.dumps({"databases": groups}), {}, Path())


def tables(found: Config) -> dict[str, list[str]]:
    return {one.name: [spec.target for spec in one.tables] for one in sources.resolve(found) if one.patterns}


def test_a_source_that_does_not_answer_keeps_what_it_had(servers: Servers) -> None:
    feeds = MemoryFeeds()
    servers.has = {"shop_eu": seen("items"), "shop_us": seen("items", "orders")}
    found = PatternTables(feeds, may_keep=True).looked(config())
    assert tables(found) == {"shop_eu": ["items"], "shop_us": ["items", "orders"]}
    assert sorted(servers.asked) == ["shop_eu", "shop_us"], "those without a pattern are not asked"
    servers.has = {"shop_eu": seen("items", "more")}
    after = PatternTables(feeds, may_keep=True)
    assert tables(after.applied(config())) == tables(found)
    assert tables(after.looked(config())) == {"shop_eu": ["items", "more"], "shop_us": ["items", "orders"]}


def test_an_answer_that_nobody_thought_of_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start asks all sources, and would end with what one of them says."""
    feeds = MemoryFeeds()
    feeds.see({"shop_us": [("orders", True, 1)]})

    class Connection:
        def __init__(self, url: str) -> None:
            self.url = url

        def close(self) -> None:
            pass

    def load_of(connection: Connection, _: object) -> tuple[SeenTable, ...]:
        if "@us/" in connection.url:
            raise ValueError("not enough values to unpack (expected 3, got 1)")
        return seen("items")

    monkeypatch.setattr(pattern_tables.conninfo, "connect", Connection)
    monkeypatch.setattr(mappable, "load", load_of)
    found = PatternTables(feeds, may_keep=True).looked(config())
    assert tables(found) == {"shop_eu": ["items"], "shop_us": ["orders"]}


def test_who_does_not_replicate_keeps_nothing(servers: Servers) -> None:
    feeds = MemoryFeeds()
    servers.has = {"shop_eu": seen("items")}
    assert tables(PatternTables(feeds).looked(config()))["shop_eu"] == ["items"]
    assert feeds.seen() == {}


def test_only_those_are_asked_that_were_not_by_these_patterns(servers: Servers) -> None:
    feeds = MemoryFeeds()
    servers.has = {"shop_eu": seen("items")}
    PatternTables(feeds, may_keep=True).looked(config())
    servers.asked.clear()
    after = PatternTables(feeds, may_keep=True)
    after.looked(config(), is_all=False)
    assert servers.asked == ["shop_us"]
    after.looked(config(), is_all=False)
    assert servers.asked == ["shop_us"]
    after.looked(config("*.*"), is_all=False)
    assert servers.asked == ["shop_us", "shop_us"]
    after.looked(config("*.*"))
    assert sorted(servers.asked) == ["shop_eu", "shop_us", "shop_us", "shop_us"]


def test_a_look_tells_what_is_new_and_who_came_first_stays_in_front(servers: Servers) -> None:
    feeds = MemoryFeeds()
    one = PatternTables(feeds, may_keep=True)
    (eu, *_) = sources.resolve(config())
    servers.has = {"shop_eu": seen("orders")}
    one.look("shop_eu", eu)
    assert one.version == 1
    one.look("shop_eu", eu)
    assert one.version == 1, "nothing is new"
    servers.has = {"shop_eu": seen("items", "orders")}
    one.look("shop_eu", eu)
    assert (one.version, feeds.seen()) == (2, {"shop_eu": (("orders", True, 1), ("items", True, 2))})
    bare = [SeenTable(table=names.parse_table(name), has_key=False) for name in ("items", "orders")]
    servers.has = {"shop_eu": tuple(bare)}
    one.look("shop_eu", eu)
    assert one.version == 2, "a table that loses its key is in error, and not out of the map"
    servers.has = {"shop_eu": ()}
    one.look("shop_eu", eu)
    assert (one.version, tables(one.applied(config()))["shop_eu"]) == (3, [])


def test_a_table_that_comes_later_takes_no_target_of_another_source(servers: Servers) -> None:
    feeds, everywhere = MemoryFeeds(), config("*.*")
    one = PatternTables(feeds, may_keep=True)
    servers.has = {"shop_eu": (), "shop_us": seen("billing.items")}
    one.looked(everywhere)
    servers.has["shop_eu"] = seen("items")
    for now in (one, PatternTables(feeds, may_keep=True)):
        assert tables(now.looked(everywhere)) == {"shop_eu": [], "shop_us": ["items"]}
        assert [str(spec.table) for source in sources.resolve(now.applied(everywhere)) for spec in source.tables] == [
            "billing.items", "public.t"
        ]  # fmt: skip


def test_of_two_processes_one_takes_in_a_table_that_appears_at_both_their_sources(servers: Servers) -> None:
    """Each looks at its own source, and nobody has told it what the other one has seen since it began."""
    groups = [
        {"database": name, "urls": [{"url": f"postgresql:///{name}"}], "tables": {"public.*": None}}
        for name in ("first", "second")
    ]
    both = load.of_text(json.dumps({"databases": groups}), {}, Path())
    first, second = sources.resolve(both)
    feeds = MemoryFeeds()
    one, two = (PatternTables(feeds, may_keep=True) for _ in range(2))
    for process in (one, two):
        process.applied(both)
    servers.has = {"first": seen("items"), "second": seen("items")}
    two.look("second", second)
    assert tables(two.applied(both)) == {"first": [], "second": ["items"]}
    one.look("first", first)
    assert tables(one.applied(both)) == {"first": [], "second": ["items"]}, "their rows would be one another's"
    version = two.version
    two.read_again()
    assert tables(two.applied(both)) == {"first": [], "second": ["items"]}
    assert two.version > version, "it is another process's table, too, if its rows have sids"
    version = two.version
    two.read_again()
    assert two.version == version


def test_what_is_left_out_is_told_once(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    servers.has = {"shop_eu": (SeenTable(table=names.parse_table("bare"), has_key=False),)}
    one = PatternTables(MemoryFeeds())
    for _ in range(2):
        one.tell(one.looked(config()))
    (record,) = caplog.records
    assert (record.levelname, record.source, record.table) == ("WARNING", "shop_eu", "bare")


def test_of_tables_that_come_and_go_those_that_are_gone_are_forgotten(servers: Servers) -> None:
    one = PatternTables(MemoryFeeds())
    for number in range(100):
        servers.has = {"shop_eu": (SeenTable(table=names.parse_table(f"bare_{number}"), has_key=False),)}
        one.tell(one.looked(config()))
    assert len(one._told) == 1


def test_a_source_with_more_tables_than_it_may_have_keeps_those_it_had(servers: Servers) -> None:
    """Whoever may create tables there would fill the lake, and the map of all others."""
    feeds, few = MemoryFeeds(), config(max_tables=2)
    (eu, *_) = sources.resolve(few)
    one = PatternTables(feeds, may_keep=True)
    servers.has = {"shop_eu": seen("items", "orders"), "shop_us": seen("items")}
    one.looked(few)
    version, servers.has["shop_eu"] = one.version, seen("items", "orders", "more")
    for ask in (lambda: one.look("shop_eu", eu), lambda: pattern_tables.refuse_many("shop_eu", eu)):
        with pytest.raises(
            SourceTooLarge, match=r"shop_eu: 3 tables of it are like patterns .*, and at most 2 may be"
        ):
            ask()
    assert one.version == version
    assert tables(one.applied(few)) == {"shop_eu": ["items", "orders"], "shop_us": ["items"]}
    servers.has["shop_eu"] = seen("items", "more")
    pattern_tables.refuse_many("shop_eu", eu)
    assert one.version == version, "whoever makes and drops tables has the source looked at no more often"
    one.look("shop_eu", eu)
    assert tables(one.applied(few))["shop_eu"] == ["items", "more"]


def test_tables_that_no_pattern_takes_in_do_not_count(servers: Servers) -> None:
    few = config("public.i*", {"except": ["items_*"]}, max_tables=1)
    (eu, *_) = sources.resolve(few)
    servers.has = {"shop_eu": seen("items", "items_1", "orders", "others")}
    PatternTables(MemoryFeeds()).look("shop_eu", eu)
    servers.has = {"shop_eu": seen("items", "invoices")}
    with pytest.raises(SourceTooLarge):
        PatternTables(MemoryFeeds()).look("shop_eu", eu)


def test_a_source_without_patterns_is_not_asked(servers: Servers) -> None:
    (*_, plain) = sources.resolve(config())
    pattern_tables.refuse_many("nobody", plain)


def test_who_makes_and_drops_tables_has_no_more_of_them_within_a_day(servers: Servers) -> None:
    few = config(max_tables=3)
    (eu, *_) = sources.resolve(few)
    one = PatternTables(MemoryFeeds(), may_keep=True)
    servers.has = {"shop_eu": seen("items", "orders"), "shop_us": seen("items")}
    one.looked(few)
    for number in range(3):
        servers.has["shop_eu"] = seen("items", f"more_{number}")
        one.look("shop_eu", eu)
    for name in ("more_0", "more_1"):
        servers.has["shop_eu"] = seen("items", name)
        one.look("shop_eu", eu)  # as before
    servers.has["shop_eu"] = seen("items", "more_3")
    for ask in (one.look, one.refuse_many):
        with pytest.raises(SourceTooLarge, match=r"4 tables .* have come to it within a day, and at most 3 may"):
            ask("shop_eu", eu)
    assert tables(one.applied(few))["shop_eu"] == ["items", "more_1"]
    servers.has["shop_eu"] = seen("items")
    one.refuse_many("shop_eu", eu)
    one.look("shop_eu", eu)
    assert tables(one.applied(few))["shop_eu"] == ["items"]
