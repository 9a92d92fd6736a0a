from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from supply import osv
from supply.hole import DatabaseUnreachableError, Hole
from supply.jar import Jar
from tests.support.hole_database import HoleDatabase, hole_database

JAR = Jar(holder="pyspark", group="org.g", artifact="a", version="1", sha256="a" * 64)
NATIVE = Jar(holder="pyspark", group="org.g", artifact="a", version="1", classifier="linux", sha256="b" * 64)
INSIDE = Jar(holder="pkg:maven/org.h/b@2", group="org.g", artifact="a", version="1")


@pytest.fixture
def database() -> Iterator[HoleDatabase]:
    with hole_database() as database:
        yield database


def test_all_pages_are_read_and_what_was_withdrawn_is_none(database: HoleDatabase) -> None:
    fixed = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]}]
    database.add("Maven", "org.g:a", "1", id="GHSA-1", aliases=["CVE-1"], summary="it\nleaks", ranges=fixed)
    database.add("Maven", "org.g:a", "1", id="GHSA-2", withdrawn="2026-01-01T00:00:00Z")
    database.add("Maven", "org.g:a", "1", id="GHSA-3")
    common = {"package": "org.g:a", "version": "1", "places": ("pkg:maven/org.h/b@2", "pyspark")}
    assert osv.holes_of([JAR, NATIVE, INSIDE], database.url) == (
        Hole(names=("CVE-1", "GHSA-1"), summary="it leaks", fixed=("1.1",), **common),
        Hole(names=("GHSA-3",), summary="no summary", fixed=(), **common),
    )
    assert database.asked == [("Maven", "org.g:a", "1")] * 3, "once for each page, not for each jar"


def test_a_database_that_is_not_there_is_no_answer() -> None:
    url = "http://127.0.0.1:1/v1/query"
    with pytest.raises(DatabaseUnreachableError, match=f"^{re.escape(url)}: org.g:a 1: .*Connection refused"):
        osv.holes_of([JAR], url)


def test_a_database_that_refuses_is_no_answer(database: HoleDatabase) -> None:
    database.status = 403
    with pytest.raises(DatabaseUnreachableError, match=r"org\.g:a 1: 403 Client Error"):
        osv.holes_of([JAR], database.url)
