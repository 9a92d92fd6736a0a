"""The plain local file system of the driver's JVM."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from kuvasz.lake.jvm import localfs


@pytest.mark.spark
def test_files_are_written_without_checksum_files(spark_session, tmp_path: Path) -> None:
    hadoop = spark_session._jsparkSession.sparkContext().hadoopConfiguration()
    assert localfs.install(spark_session._jvm, hadoop)
    file = tmp_path / "part"
    path = spark_session._jvm.org.apache.hadoop.fs.Path(f"file://{file}")
    path.getFileSystem(hadoop).create(path).close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["part"]


def test_a_jvm_that_cannot_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    class Jvm:
        def __getattr__(self, name: str) -> object:
            raise Py4JError(f"no {name}")

    with caplog.at_level(logging.DEBUG, "kuvasz.lake.jvm.localfs"):
        assert not localfs.install(Jvm(), None)
