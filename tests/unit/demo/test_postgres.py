from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest

from kuvasz.demo.postgres import EmbeddedPostgres

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("version", [16, 18])
def test_a_server_of_the_asked_version_runs_with_logical_replication(tmp_path, version):
    with EmbeddedPostgres(tmp_path / "data", version=version, settings={"max_replication_slots": "3"}) as server:
        with psycopg.connect(server.url()) as connection:
            assert connection.info.server_version // 10000 == version
            assert connection.execute("SHOW wal_level").fetchall() == [("logical",)]
            assert connection.execute("SHOW max_replication_slots").fetchall() == [("3",)]
        with psycopg.connect(server.socket_url()) as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
    assert not server.folder.exists()


def test_a_relative_folder_is_taken_from_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    server = EmbeddedPostgres(Path("data") / "eu")

    # Absolute, since the server's programs run elsewhere; the very place depends on who may reach it.
    assert server.folder.is_absolute()
    with server:
        assert (server.folder / "PG_VERSION").exists()


def test_data_survives_a_crash_and_a_restart_on_the_same_port(tmp_path, new_data):
    server = EmbeddedPostgres(tmp_path / "data")
    subprocess.run(["cp", "-a", new_data, server.folder], check=True)
    with server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE TABLE t AS SELECT 7 AS n")
            connection.execute("CHECKPOINT")
        port = server.port

        server.restart("immediate")

        assert server.port == port
        with psycopg.connect(server.url()) as connection:
            assert connection.execute("SELECT n FROM t").fetchall() == [(7,)]


def test_a_server_that_cannot_start_says_why(tmp_path, new_data):
    server = EmbeddedPostgres(tmp_path / "data", settings={"no_such_setting": "1"})
    subprocess.run(["cp", "-a", new_data, server.folder], check=True)
    with pytest.raises(RuntimeError, match="pg_ctl ended with 1"):
        server.start()
    server.remove()
