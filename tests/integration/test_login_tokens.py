"""Passwords that are tokens of a cloud: a command gives them, each is good for moments, and for new connections."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from kuvasz.config import secrets
from kuvasz.config.load import load
from kuvasz.demo.postgres import EmbeddedPostgres
from kuvasz.sync.tables import copy_snapshot
from tests.support.lake import MemoryPipeline
from tests.support.postgres import Server, new_data_folder
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

#: Gives a token that is good for a moment; the server takes none of before.
GIVE = """
import pathlib, secrets, sys
import psycopg
token = secrets.token_hex() + "/=@:%"
with psycopg.connect(sys.argv[1]) as connection:
    ((until,),) = connection.execute("SELECT (clock_timestamp() + interval '4 s')::text").fetchall()
    connection.execute(f"ALTER ROLE iam PASSWORD '{token}' VALID UNTIL '{until}'")
with pathlib.Path(sys.argv[2]).open("a") as given:
    print(token, file=given)
print(token)
"""
ROWS = 20_000


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A server that wants a password of the role `iam`."""
    with Server(new_data_folder()) as made:
        with psycopg.connect(made.url(), autocommit=True) as connection:
            connection.execute("CREATE TABLE items (id int PRIMARY KEY, body text)")
            connection.execute(
                f"INSERT INTO items SELECT i, repeat(md5(i::text), 4) FROM generate_series(1, {ROWS}) i"
            )
            connection.execute("CREATE ROLE iam LOGIN REPLICATION")
            connection.execute("GRANT CREATE ON DATABASE postgres TO iam")
            connection.execute("ALTER TABLE items OWNER TO iam")
        rules = "host all iam all scram-sha-256\nlocal all all trust\nhost all postgres all trust\n"
        (made.folder / "pg_hba.conf").write_text(rules)
        made.restart()
        yield made


def test_each_connection_has_a_token_of_its_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: EmbeddedPostgres
) -> None:
    """Stream, copies of several sessions, looks at the catalog: what comes with a token of before is tried again."""
    monkeypatch.setattr(secrets, "_SAID_S", 1.0)
    monkeypatch.setattr(copy_snapshot, "_RANGE_BYTES", 512 << 10)
    script, given = tmp_path / "give.py", tmp_path / "given"
    script.write_text(GIVE)
    command = f"{sys.executable} {script} {server.url()} {given}"
    document = {
        "lake": {"warehouse": str(tmp_path), "namespace": "shop"},
        "pipeline": {"state": str(tmp_path / "state"), "commit_interval": "20ms"},
        "server": {"address": None},
        "databases": [
            {
                "database": "shop",
                "urls": [{"url": f"postgresql://iam:${{exec:{command}}}@127.0.0.1:{server.port}/postgres"}],
                "tables": {"items": None},
            }
        ],
    }
    (tmp_path / "map.yaml").write_text(json.dumps(document))
    config = load(tmp_path / "map.yaml", {}).config
    with (
        MemoryPipeline(config, SimpleNamespace()) as pipeline,
        psycopg.connect(server.url(), autocommit=True) as connection,
    ):
        pipeline.wait_streaming()
        for number in range(3):
            before = given.read_text().splitlines()
            wait_until(_expired(connection), "the token has expired")
            if number == 1:
                pipeline.tell("resync", "shop.items", "shop")
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'iam'")
            connection.execute("UPDATE items SET body = %s WHERE id = 1", (f"change {number}",))
            wait_until(
                lambda n=number: (1, f"change {n}") in pipeline.rows(), lambda: f"it comes: {pipeline.errors()}"
            )
            assert len(given.read_text().splitlines()) > len(before), "by another token"
        pipeline.wait_streaming()
        rows = connection.execute("SELECT id, body FROM items ORDER BY id").fetchall()
        assert pipeline.rows() == rows
        told = [*pipeline.errors(), repr(pipeline.app.view())]
    assert not [token for token in given.read_text().splitlines() for text in told if token in text]


def _expired(connection: psycopg.Connection) -> object:
    query = "SELECT rolvaliduntil < clock_timestamp() FROM pg_roles WHERE rolname = 'iam'"
    return lambda: connection.execute(query).fetchall() == [(True,)]
