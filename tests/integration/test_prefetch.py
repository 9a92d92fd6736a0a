"""What `make jars` brings is what a start uses."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kuvasz.lake.java import jars, versions
from kuvasz.lake.java.class_archive import archive_of

pytestmark = pytest.mark.spark


def test_a_start_maps_the_archive_of_classes(spark_session: SparkSession) -> None:
    archive = archive_of(jars.class_path(versions.CORE))
    if not archive.is_file():
        pytest.skip("`make jars` could not make an archive with this Java")
    maps = Path(f"/proc/{spark_session.sparkContext._gateway.proc.pid}/maps").read_text()
    assert str(archive) in maps, "the JVM did not refuse it"
