"""A source that answers nothing does not keep the process from ending."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from tests.support.lake import group
from tests.support.load import TABLES, create_tables, fill_tables
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


def test_a_process_ends_while_a_source_is_silent(new_process: Callable[..., Process], database: Database) -> None:
    create_tables(database)
    fill_tables(database)
    (databases,) = group({"eu": database}, dict.fromkeys(TABLES))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://postgres@127.0.0.1:{silent.getsockname()[1]}/shop?connect_timeout=600"
        databases["urls"] += [{"url": url, "sid": "us"}]
        process = new_process([databases])
        process.start()
        asked, _ = silent.accept()
        process.wait_event("copied", len(TABLES))
        process.terminate()
        asked.close()
