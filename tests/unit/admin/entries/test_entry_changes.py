"""The map changed by requests: what its file has afterwards, what is refused, and who is told."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kuvasz.admin import live_map
from kuvasz.admin.entries.entry_answers import EntryAnswers
from kuvasz.admin.entries.source_shelf import SourceShelf
from kuvasz.config.load import load
from kuvasz.errors import MapBusy
from kuvasz.model import Column, PgType, Relation, ReplicaIdentity, TableName
from kuvasz.source.catalog.table import SourceTable, TableKind
from tests.support.writable_world import WritableWorld


def source_table(name: str) -> SourceTable:
    columns = (Column(name="id", pg_type=PgType(oid=23, name="int4"), is_key=True, attnum=1),)
    relation = Relation(
        oid=1, table=TableName(schema="public", name=name), identity=ReplicaIdentity.DEFAULT, columns=columns
    )
    return SourceTable(
        relation=relation, kind=TableKind.TABLE, page_bytes=8192, row_estimate=None, primary_key=("id",),
        identity_index=(), generated=(), leaves=(),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "a-secret")


@pytest.fixture
def world(tmp_path: Path) -> WritableWorld:
    return WritableWorld(tmp_path)


def test_a_group_with_a_source_and_a_table_is_added_as_kuvasz_streamers_users_do(world: WritableWorld) -> None:
    assert world.ask("/api/db", body={"name": "blog"}) == (200, {"id": 2, "name": "blog"})
    status, url = world.ask("/api/url", body={"db_id": 2, "sid": "de", "url": "postgresql://repl:pw@de/blog"})
    assert (status, url["id"], url["url"], url["db_name"]) == (200, 3, "postgresql://repl:***@de/blog", "blog")
    table = {"db_id": 2, "name": "posts", "type": "append", "target": "articles"}
    status, shown = world.ask("/api/tbl", body=table)
    assert (status, shown) == (
        200,
        {**table, "id": 3, "db_name": "blog", "schema": "public", "partitions_regex": None},
    )
    assert world.text.endswith("""\
    others: {filter: "a > 1"}  # of others
- database: blog
  urls:
  - {url: "postgresql://repl:pw@de/blog", sid: de}
  tables:
    posts: {type: append, target: articles}
# the end
""")
    assert [one.name for one in world.taken[-1].added] == ["blog_de"], "it begins with its first table"
    assert (world.file.with_name("map.yaml.before").read_text()) in world.text.replace(
        "  tables:\n    posts: {type: append, target: articles}\n", "  tables: {}\n"
    )
    assert load(world.file, {"PW": "a-secret"}).config.databases == world.app.config.databases


def test_a_table_is_changed_with_all_else_that_the_map_says_of_it(world: WritableWorld) -> None:
    shown = world.ask("/api/tbl/2", method="GET")[1]
    status, after = world.ask("/api/tbl/2", method="PUT", body={**shown, "name": "goods", "target": "others"})
    assert (status, after) == (200, {**shown, "name": "goods"}), "its number and its target stay"
    assert '    goods: {filter: "a > 1", target: others}  # of others' in world.text
    assert world.ask("/api/tbl/2", method="PUT", body={**after, "target": "goods"})[0] == 200
    assert '    goods: {filter: "a > 1"}  # of others' in world.text
    status, after = world.ask(
        "/api/tbl/1",
        method="PUT",
        body={**world.ask("/api/tbl/1", method="GET")[1], "target": "things", "partitions_regex": ""},
    )
    assert (status, after["target"]) == (200, "things")
    assert "    items: {target: things}    # all of them\n" in world.text


def test_a_renamed_entry_keeps_its_number_where_kuvasz_ends_behind_the_change_of_the_map(
    world: WritableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    class EndedError(Exception):
        pass

    def end(*_: object) -> None:
        raise EndedError

    shown = world.ask("/api/tbl/2", method="GET")[1]
    monkeypatch.setattr(world.stored.numbers, "rename", end)
    assert world.ask("/api/tbl/2", method="PUT", body={**shown, "name": "goods"})[0] == 500
    assert "    goods:" in world.text
    assert world.ask("/api/tbl/2", method="GET") == (200, {**shown, "name": "goods", "target": "others"})


def test_a_name_that_was_refused_is_nobodys(world: WritableWorld) -> None:
    shown = world.ask("/api/tbl/2", method="GET")[1]
    world.busy = MapBusy("busy")
    assert world.ask("/api/tbl/2", method="PUT", body={**shown, "name": "goods"})[0] == 409
    world.busy = None
    wrong = {**shown, "name": "goods", "partitions_regex": "g.*"}
    assert world.ask("/api/tbl/2", method="PUT", body=wrong)[0] == 409
    assert world.ask("/api/tbl/2", method="DELETE")[0] == 200
    assert world.ask("/api/tbl", body={**shown, "name": "goods"})[1]["id"] == 3


def test_a_source_keeps_its_password_where_it_comes_back_hidden(world: WritableWorld) -> None:
    shown = world.ask("/api/url/1", method="GET")[1]
    assert shown["url"] == "postgresql://repl:***@eu1/shop"
    before = world.text
    assert world.ask("/api/url/1", method="PUT", body=shown)[0] == 200
    assert world.text == before, "nothing differs"
    body = {**shown, "url": "postgresql://repl:***@eu1/shop?sslmode=require"}
    assert world.ask("/api/url/1", method="PUT", body=body)[0] == 200
    assert '- {url: "postgresql://repl:${PW}@eu1/shop?sslmode=require", sid: eu}  # Frankfurt' in world.text
    for url in ("postgresql://repl:***@evil/shop", "postgresql://you:***@eu1/shop", "postgresql:///a?password=***"):
        status, told = world.ask("/api/url/1", method="PUT", body={**shown, "url": url})
        assert (status, told["error"]) == (
            400, "url has *** as its password, and the map has none for that place"
        ), url  # fmt: skip
    assert world.ask("/api/url", body={"db_id": 1, "sid": "x", "url": "postgresql://repl:***@eu1/shop"})[0] == 400


def test_what_somebody_else_removes_at_once_is_told(world: WritableWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_: EntryAnswers) -> list[Any]:
        return []

    monkeypatch.setattr(EntryAnswers, "databases", nothing)
    status, told = world.ask("/api/db", body={"name": "blog"})
    assert (status, told["error"]) == (409, "it was written, and somebody else has removed it since")


def test_what_is_removed_is_gone_and_its_number_nobodys(world: WritableWorld) -> None:
    assert world.ask("/api/db/1", method="DELETE")[1]["error"] == "the group 'shop' has 2 urls and 2 tables"
    for path in ("url/1", "url/2", "tbl/1", "tbl/2", "db/1"):
        assert world.ask(f"/api/{path}", method="DELETE") == (200, "null")
        assert world.ask(f"/api/{path}", method="DELETE")[0] == 404
    assert world.ask("/api/db", method="GET") == (200, [])
    assert "# Frankfurt" not in world.text
    assert "# the end\n" in world.text
    assert world.ask("/api/db", body={"name": "again"}) == (200, {"id": 2, "name": "again"})


def test_a_group_has_another_name_as_long_as_nothing_is_replicated_of_it(world: WritableWorld) -> None:
    assert world.ask("/api/db/1", method="PUT", body={"name": "store"})[0] == 409
    assert world.ask("/api/db/1", method="PUT", body={"name": "shop"}) == (200, {"id": 1, "name": "shop"})
    for number in (1, 2):
        assert world.ask(f"/api/tbl/{number}", method="DELETE")[0] == 200
    assert world.ask("/api/db/1", method="PUT", body={"name": "store"}) == (200, {"id": 1, "name": "store"})
    assert [one["id"] for one in world.ask("/api/url", method="GET")[1]] == [1, 2]
    changed = {"db_id": 1, "sid": "uk", "url": "postgresql://uk/shop"}
    status, shown = world.ask("/api/url/2", method="PUT", body=changed)
    assert (status, shown["id"], shown["sid"]) == (200, 2, "uk")


def test_a_table_of_the_sources_is_added_by_its_number(world: WritableWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SourceShelf, "_tables", lambda *_: [source_table("later")])
    status, told = world.ask("/api/map/1/clone")
    assert (status, told["error"]) == (409, "the map has the table public.items already")
    assert world.ask("/api/map/99/clone")[0] == 404
    assert world.ask("/api/map/x/clone")[1]["code"] == "invalid_id"
    assert world.ask("/api/map/3/clone?type=none")[1]["code"] == "invalid_type"
    assert len(world.ask("/api/map", method="GET")[1]) == 3
    status, shown = world.ask("/api/map/3/clone?type=append&target=s.later")
    assert (status, shown["replicated"], shown["type"], shown["target"]) == (200, True, "append", "s.later")
    assert "    later: {type: append, target: s.later}\n" in world.text


@pytest.mark.parametrize(
    ("method", "path", "body", "error"),
    [
        ("POST", "db", {}, "name is missing: it has to be a text"),
        ("POST", "db", {"name": 7}, "name has to be a text"),
        ("POST", "db", {"name": "a", "plan": 1}, "the body has the unknown field 'plan'"),
        ("POST", "url", {"db_id": "toto", "url": "x"}, "db_id has to be a whole number from 1 on"),
        ("POST", "url", {"db_id": True, "url": "x"}, "db_id has to be a whole number from 1 on"),
        ("POST", "url", {"db_id": 9, "url": "postgresql:///x"}, "db_id: there is no db 9"),
        ("POST", "url", {"db_id": 1, "sid": "x"}, "url is missing: it has to be a text"),
        ("POST", "url", {"db_id": 1, "sid": "x", "url": "mysql://a"}, "url must be a PostgreSQL url such as"),
        ("POST", "url", {"db_id": 1, "sid": "x", "url": "postgresql://a:${PW}@b/c"}, "url must not refer"),
        ("POST", "url", {"db_id": 1, "sid": "${exec:id}", "url": "postgresql:///x"}, "sid must not refer"),
        ("POST", "tbl", {"db_id": 1, "name": "a", "target": "a"}, "type is missing: it has to be clone, append,"),
        ("POST", "tbl", {"db_id": 1, "name": "a", "target": "a", "type": "x"}, "type has to be clone, append,"),
        ("POST", "tbl", {"db_id": 1, "name": "a", "target": "a/b", "type": "clone"}, "target "),
        ("POST", "tbl", {"db_id": 1, "name": "a", "target": "a", "type": "clone", "partitions_regex": "("},
         "partitions_regex "),
        ("POST", "tbl", {"db_id": 1, "name": "a" * 64, "target": "a", "type": "clone"}, "name "),
        ("PUT", "tbl/1", {"db_id": 1, "name": "a", "target": "a", "type": "clone"}, "schema is missing"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_field(
    world: WritableWorld, method: str, path: str, body: dict[str, Any], error: str
) -> None:
    before = world.text
    status, told = world.ask(f"/api/{path}", method=method, body=body)
    assert (status, told["code"]) == (400, "invalid_request")
    assert told["error"].startswith(error)
    assert world.text == before


@pytest.mark.parametrize(
    ("method", "path", "body", "error"),
    [
        ("POST", "db", {"name": "shop"}, "is the name of databases[0], too"),
        ("POST", "url", {"db_id": 1, "sid": "eu", "url": "postgresql:///x"}, "is that of urls[0] already"),
        ("POST", "url", {"db_id": 1, "url": "postgresql:///x"}, "a sid is needed"),
        ("POST", "tbl", {"db_id": 1, "name": "items", "target": "x", "type": "clone"}, "has the table public.items"),
        ("POST", "tbl", {"db_id": 1, "name": "x", "target": "items", "type": "clone"}, "is that of 'items' already"),
        ("PUT", "url/1", {"db_id": 1, "sid": "de", "url": "postgresql:///x"}, "cannot change"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_a_conflict_that_changes_nothing(
    world: WritableWorld, method: str, path: str, body: dict[str, Any], error: str
) -> None:
    before = world.text
    status, told = world.ask(f"/api/{path}", method=method, body=body)
    assert (status, told["code"]) == (409, "conflict")
    assert error in told["error"]
    assert "map.yaml:" not in told["error"], "the place would be of a file that nobody has"
    assert (world.text, world.taken) == (before, [])
    assert not world.file.with_name("map.yaml.before").exists()


@pytest.mark.parametrize("body", ["", "{", "null", "[" * 60_000, "1" * 60_000, '"\\ud800"'])
def test_a_body_that_is_no_json_object_is_told_whatever_it_is(world: WritableWorld, body: str) -> None:
    status, refused = world.ask("/api/db", body=body)
    assert (status, refused["code"], refused["error"]) == (400, "invalid_request", "the body is no JSON object")


@pytest.mark.parametrize(("path", "body"), [("/api/db", {"name": "blog"}), ("/api/url/restart", {})])
def test_what_only_has_to_wait_is_told_apart_from_what_never_goes(
    world: WritableWorld, path: str, body: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program asks again for the one, as after `POST /api/map/reload`, and gives up the other."""
    monkeypatch.setattr(live_map, "_SETTLE_S", 0.0)
    world.busy = MapBusy("the map before it is still being put into use")
    assert (world.ask(path, body=body)[1]["code"], world.ask(path, body=body)[0]) == ("map_busy", 409)
    world.busy = None
    assert world.ask("/api/db", body={"name": "shop"})[1]["code"] == "conflict"


def test_a_file_that_a_person_changed_meanwhile_is_left_alone(world: WritableWorld) -> None:
    world.file.write_text(world.text + "# mine\n")
    status, told = world.ask("/api/db", body={"name": "blog"})
    assert (status, told["code"]) == (409, "conflict")
    assert "somebody changed it since it was read" in told["error"]
    assert world.text.endswith("# mine\n")


def test_a_map_is_read_only_unless_it_says_otherwise(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = WritableWorld(tmp_path, is_writable=False)
    for method, path in (("POST", "db"), ("PUT", "url/1"), ("DELETE", "tbl/1"), ("POST", "map/1/clone")):
        status, told = world.ask(f"/api/{path}", method=method, body={"no": "matter"})
        assert (status, told["code"], told["error"]) == (405, "not_allowed", "the map is read-only")
    (record, *_) = [one for one in caplog.records if getattr(one, "what", "") == "PUT /api/url/{id}"]
    assert (record.target, record.result) == ("url 1", "refused")  # type: ignore[attr-defined]


def test_every_change_is_told_with_who_and_what(world: WritableWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world.ask("/api/db", body={"name": "blog"})
    world.ask("/api/db/2", method="DELETE")
    told = [(one.what, one.target, one.result) for one in caplog.records if hasattr(one, "what")]
    assert told == [("POST /api/db", "blog", "done"), ("DELETE /api/db/{id}", "db 2", "done")]
    assert len([one for one in caplog.records if one.msg == "the map's file is changed, and taken over"]) == 2


def test_all_sources_are_begun_again_when_that_is_asked(world: WritableWorld) -> None:
    assert world.ask("/api/url/restart") == (200, "null")
    assert [one.source.name for one in world.taken[0].changed] == ["shop_eu", "shop_us"]
    world.busy = MapBusy("it is busy", hint="later")
    assert world.ask("/api/url/restart")[0] == 409
    assert world.ask("/api/db", body={"name": "blog"})[0] == 409


def test_sources_are_begun_again_when_a_change_that_is_being_written_is_taken_over(
    world: WritableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the change would be in the file, refused to whoever asked for it, and in no map that runs."""
    is_writing, may_write = threading.Event(), threading.Event()
    exchange = world.store.exchange

    def slow(text: str, digest: str) -> None:
        is_writing.set()
        may_write.wait(10)
        exchange(text, digest)

    monkeypatch.setattr(world.store, "exchange", slow)

    async def both(client: aiohttp.ClientSession, url: str) -> list[int]:
        address = world.stored.address.find()
        assert address is not None
        headers = {"Authorization": f"Bearer {address.token}"}
        table = {"db_id": 1, "name": "posts", "type": "clone", "target": "posts"}
        added = asyncio.create_task(client.post(f"{url}/api/tbl", json=table, headers=headers))
        await asyncio.to_thread(is_writing.wait, 10)
        begun = asyncio.create_task(client.post(f"{url}/api/url/restart", headers=headers))
        await asyncio.sleep(0.2)
        assert world.taken == []
        may_write.set()
        return [answer.status for answer in await asyncio.gather(added, begun)]

    assert world.live(both) == [200, 200]
    assert [one.changed[0].added for one in world.taken] == [("posts",), ()]
