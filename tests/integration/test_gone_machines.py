"""What a server keeps for a machine that is gone, it keeps for a minute and a half."""

from __future__ import annotations

import contextlib

import psycopg
import pytest

from kuvasz.source import conninfo
from tests.support.postgres import Database

pytestmark = pytest.mark.postgres


def test_a_server_looks_itself_whether_a_session_is_there(database: Database) -> None:
    names = "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count"
    query = f"SELECT {', '.join(f'current_setting($${name}$$)' for name in names)}"
    with contextlib.closing(conninfo.connect(database.url)) as session:
        assert session.execute(query).fetchone() == ("60", "10", "3")
    with psycopg.connect(conninfo.replication_conninfo(database.url), autocommit=True) as session:
        assert session.execute("SHOW tcp_keepalives_idle").fetchone() == ("60",)
