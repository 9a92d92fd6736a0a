from __future__ import annotations

import psycopg
import pytest

from kuvasz.source import conninfo, slots
from kuvasz.source.check import server_room
from kuvasz.source.check.finding import Finding

pytestmark = pytest.mark.postgres


def look(url: str, ours: list[str], count: int) -> dict[str, Finding]:
    return {one.check: one for one in server_room.check_server(url, ours, count)}


def test_a_few_sources_find_room_and_a_thousand_do_not(source):
    few = look(source.url, ["kuvasz_shop"], 1)
    assert few.keys() == {"slots", "senders", "connections", "slots_left"}
    assert [one.check for one in few.values() if not one.ok and one.check != "slots_left"] == []
    assert {one.source for one in few.values()} == {conninfo.servers(source.url)}
    many = look(source.url, [f"kuvasz_shop_{number}" for number in range(1000)], 1000)
    assert [one.check for one in many.values() if not one.ok and one.check != "slots_left"] == ["slots", "senders"]
    assert many["slots"].needed == "1003 free, for all sources there"
    assert not many["slots"].is_blocking


def test_what_sources_have_already_they_need_no_more(source):
    name = f"kuvasz_{source.name}"
    with slots.create(conninfo.replication_conninfo(source.url), name):
        pass
    try:
        before, after = look(source.url, [], 5)["slots"], look(source.url, [name], 5)["slots"]
        assert (before.needed, after.needed) == ("8 free, for all sources there", "7 free, for all sources there")
    finally:
        with conninfo.connect(source.url) as connection:
            slots.drop(connection, name)


def test_a_role_without_rights_counts_the_same(source):
    role = f"plain_{source.name}"
    url = source.server.url(source.name, user=role)
    with conninfo.connect(source.url) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        try:
            with psycopg.connect(source.url), psycopg.connect(url):
                assert look(url, [], 1)["connections"].value == look(source.url, [], 1)["connections"].value
        finally:
            connection.execute(f"DROP ROLE {role}")


def test_a_slot_that_nobody_reads_is_told_with_what_drops_it(source):
    left, foreign = f"kuvasz_{source.name}_left", f"other_{source.name}"
    with conninfo.connect(source.url) as connection:
        for name in (left, foreign):
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
        try:
            assert left not in look(source.url, [left], 1)["slots_left"].value
            found = look(source.url, [f"kuvasz_{source.name}"], 1)["slots_left"]
            assert (found.ok, found.is_blocking) == (False, False)
            assert f"{left} of database {source.name}, " in found.value
            assert foreign not in found.value
            # What it names may be others', so only ours is dropped here.
            statement = f"SELECT pg_drop_replication_slot('{left}');"
            assert statement in found.fix
            connection.execute(statement)
            assert left not in look(source.url, [], 1)["slots_left"].value
        finally:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = ANY(%s)",
                [[left, foreign]],
            )
