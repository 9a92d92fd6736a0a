"""The plain local file system, in a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from kuvasz.lake.jvm import localfs


@pytest.mark.spark
def test_files_are_written_without_checksum_files(spark_session, tmp_path: Path) -> None:
    hadoop = spark_session._jsparkSession.sparkContext().hadoopConfiguration()
    assert localfs.install(spark_session._jvm, hadoop)
    file = tmp_path / "part"
    path = spark_session._jvm.org.apache.hadoop.fs.Path(f"file://{file}")
    path.getFileSystem(hadoop).create(path).close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["part"]
