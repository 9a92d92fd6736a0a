"""Erasures asked for by HTTP: kuvasz stops replicating for them, and begins again, over kills in the middle of it."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.lake import group
from tests.support.opened_files import holding
from tests.support.oracle import source_rows
from tests.support.postgres import Database, create_database, drop_database
from tests.support.process import START_PATIENCE_S, Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

#: Stands in every row of the tenant, and nowhere else.
PLANTED = "Quittenmus"


@pytest.fixture
def second(postgres16) -> Iterator[Database]:
    created = create_database(postgres16)
    yield created
    drop_database(created)


def ask(process: Process, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Ask whoever answers for this map just now."""
    found = json.loads((process.folder / "state" / "server.json").read_text())
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{found['url']}{path}", data=data)  # noqa: S310
    request.add_header("Authorization", f"Bearer {found['token']}")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def wait_ended(process: Process, name: str) -> dict[str, Any]:
    """Wait for the end of an erasure; return what is told of it."""
    seen: list[dict[str, Any]] = []

    def has_ended() -> bool:
        try:
            status, told = ask(process, f"/api/erasure/{name}")
        except (OSError, ValueError):  # one server has ended, and the next does not answer yet
            return False
        assert status == 200, told
        seen.append(told)
        return told["state"] not in {"waiting", "running"}

    process.wait_until(has_ended, "the erasure has ended")
    return seen[-1]


@pytest.mark.timeout(900)
def test_a_tenant_and_a_row_are_erased_and_the_others_go_on(
    database: Database, second: Database, new_process: Callable[..., Process]
) -> None:
    for one, text in ((database, PLANTED), (second, "Mirabelle")):
        one.execute("CREATE TABLE items (id int PRIMARY KEY, b text)")
        one.execute(f"INSERT INTO items SELECT i, '{text}-' || i FROM generate_series(1, 50) i")
    # Patterns take these in, one for the tenant that leaves alone.
    database.execute(f"CREATE TABLE own AS SELECT 1 AS id, '{PLANTED}' AS b; ALTER TABLE own ADD PRIMARY KEY (id)")
    second.execute("CREATE TABLE other AS SELECT 1 AS id, 'Mispel' AS b; ALTER TABLE other ADD PRIMARY KEY (id)")
    tables = {"items": None, "o*": None}
    process = new_process(group({"de": database, "fr": second}, tables), address="127.0.0.1:0")
    process.map.write_text(json.dumps(json.loads(process.map.read_text()) | {"map": {"writable": True}}))
    process.start(failpoints="erasing:kill:7")
    process.wait_event("copied", 4)
    for one in (database, second):
        one.execute("UPDATE items SET b = b || 'x' WHERE id < 20")
    process.wait_confirmed(database, second)

    status, refused = ask(process, "/api/erasure", {"sid": "de"})
    assert (status, refused["error"][:44]) == (409, "source erase takes shop_de out of the map wi"), refused
    status, noted = ask(process, "/api/erasure", {"sid": "de", "sure": True})
    assert (status, noted["state"]) == (202, "waiting"), noted
    process.wait_killed()
    assert process.found("erasing")

    # Whoever starts it again need not know of it.
    process.start()
    ended = wait_ended(process, noted["id"])
    assert (ended["state"], ended["receipt"]["is_clean"]) == ("done", True), ended
    assert {name: ended["receipt"]["tables"][f"shop.{name}"]["rows"] for name in ("items", "own", "other")} == {
        "items": 50, "own": 1, "other": 0,
    }  # fmt: skip
    assert ended["receipt"]["dropped"]["sources"] == ["shop_de"]
    process.wait_event("erased")
    assert holding(process.folder, PLANTED) == []
    assert not database.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'kuvasz_shop_de'")
    second.execute("INSERT INTO items VALUES (100, 'Zwetschge')")
    process.wait_confirmed(second)
    process.assert_equal("items", source_rows(second.url, "items", sid="fr"), key=("sid", "id"))
    assert ask(process, "/status")[1]["phase"] == "running"

    # A row, of which the source has let go, of a table of each kind.
    second.execute("DELETE FROM items WHERE id = 100; DELETE FROM other")
    process.wait_confirmed(second)
    for number, (table, key) in enumerate((("items", "100"), ("other", "1")), 2):
        body = {"table": table, "key": [key], "sid": "fr", "sure": True}
        status, noted = ask(process, "/api/erasure", body)
        assert status == 202, noted
        ended = wait_ended(process, noted["id"])
        assert (ended["state"], ended["receipt"]["is_clean"]) == ("done", True), ended
        process.wait_event("erased", number)
    assert holding(process.folder, "Zwetschge") == []
    assert holding(process.folder, "Mispel") == []
    second.execute("INSERT INTO items VALUES (101, 'c')")
    process.wait_confirmed(second)
    process.assert_equal("items", source_rows(second.url, "items", sid="fr"), key=("sid", "id"))

    # One that cannot be done is told, and holds nobody up.
    status, noted = ask(process, "/api/erasure", {"sid": "fr", "sure": True})
    assert (status, wait_ended(process, noted["id"])["state"]) == (202, "done"), "a map may be without sources"
    process.wait_event("erased", 4)
    assert [one["state"] for one in ask(process, "/api/erasure")[1]] == ["done"] * 4
    process.terminate()


@pytest.mark.timeout(600)
def test_what_cannot_be_erased_is_told_and_a_stop_in_the_middle_waits_for_nothing(
    database: Database, new_process: Callable[..., Process]
) -> None:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, b text)")
    database.execute("INSERT INTO items SELECT i, 'b' FROM generate_series(1, 50) i")
    process = new_process(group({"de": database}, {"items": None}), address="127.0.0.1:0")
    process.start(failpoints="erasing:sleep=30")
    process.wait_event("copied")
    process.wait_confirmed(database)
    status, refused = ask(process, "/api/erasure", {"sid": "de", "sure": True})
    assert (status, refused["error"]) == (405, "shop_de would leave the map, which is read-only")

    # Its group would be without a source, as the map has it.
    writable = json.loads(process.map.read_text()) | {"map": {"writable": True}}
    assert ask(process, "/api/cut", {"name": "kept"})[0] == 200
    process.map.write_text(json.dumps(writable))
    assert process.run("reload").returncode == 0
    status, noted = ask(process, "/api/erasure", {"sid": "de", "sure": True})
    assert status == 202, noted
    ended = wait_ended(process, noted["id"])
    assert (ended["state"], ended["hint"]) == (
        "failed", "--with-tags removes them; cuts are such tags. Without it nothing is done",
    )  # fmt: skip
    process.wait_event("erasure_failed")
    process.wait_until(lambda: ask(process, "/status")[1]["phase"] == "running", "it replicates again")
    database.execute("UPDATE items SET b = 'c'")
    process.wait_confirmed(database)
    process.assert_equal("items", source_rows(database.url, "items", sid="de"))

    status, noted = ask(process, "/api/erasure", {"sid": "de", "with_tags": True, "sure": True})
    assert status == 202, noted
    process.wait_event("erasing", 2)
    begin = time.monotonic()
    process.begin_stop()
    assert process.wait(START_PATIENCE_S) in {0, -signal.SIGTERM}
    assert time.monotonic() - begin < 30
    process.start()
    assert wait_ended(process, noted["id"])["state"] == "done"
