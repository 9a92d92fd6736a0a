"""Catalogs by PyIceberg: what a jdbc uri means there, and what is said of one that cannot be read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError, ProgrammingError

from kuvasz.config.model import LakeConfig
from kuvasz.errors import LakeError
from kuvasz.verbs.catalogs import pyiceberg_catalog


@pytest.mark.parametrize(
    ("uri", "properties", "expected"),
    [
        ("jdbc:postgresql://db:5432/lake", {}, "postgresql+psycopg://db:5432/lake"),
        ("jdbc:postgresql://db/lake?user=bo&password=p%40ss&ssl=true", {}, "postgresql+psycopg://bo:p%40ss@db/lake"),
        ("jdbc:postgresql://db/lake?user=bo", {"jdbc.user": "al", "jdbc.password": "x/y"},
         "postgresql+psycopg://al:x%2Fy@db/lake"),
    ],
)  # fmt: skip
def test_a_jdbc_uri_is_read_as_java_reads_it(uri: str, properties: dict[str, str], expected: str) -> None:
    lake = LakeConfig(uri=uri, warehouse="/wh", properties=properties)
    found = pyiceberg_catalog.catalog_properties(lake)
    assert (found["type"], found["uri"], found["init_catalog_tables"]) == ("sql", expected, "false")


def test_a_catalog_that_python_cannot_read_is_told_without_its_secrets() -> None:
    lake = LakeConfig(uri="jdbc:mysql://db/lake?password=geheim", warehouse="/wh")
    with pytest.raises(LakeError) as caught:
        pyiceberg_catalog.catalog_properties(lake)
    assert caught.value.message == "lake.uri: jdbc:mysql://db/lake is no catalog that can be looked at without Spark"


@pytest.mark.parametrize(
    ("error", "is_to_be_made"),
    [
        (OperationalError("SELECT", {}, Exception("no such table: iceberg_tables")), True),
        (ProgrammingError("SELECT", {}, SimpleNamespace(sqlstate="42P01")), True),  # type: ignore[arg-type]
        (ProgrammingError("SELECT", {}, SimpleNamespace(sqlstate="42501")), False),  # type: ignore[arg-type]
        (ValueError("no such table"), False),
    ],
)
def test_a_catalog_whose_tables_a_start_makes_is_told_from_a_broken_one(
    error: Exception, *, is_to_be_made: bool
) -> None:
    assert pyiceberg_catalog._is_to_be_made(error) is is_to_be_made
