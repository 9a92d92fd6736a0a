"""The classes of Iceberg and Java that every table needs, looked up once: each dot of a Java name is a round trip."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from kuvasz.lake.jvm import jvm_calls


class IcebergClasses:
    """What a catalog's tables are handed of the JVM.

    Args:
        session: Whose JVM it is.
    """

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session._jvm
        self.jvm = jvm
        executors = jvm.org.apache.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors
        self.direct = executors.newDirectExecutorService()  #: runs what it is given in the thread that gives it
        self.calls = jvm_calls.install(jvm, self.direct)  #: None: not to be had, py4j takes each step
        self.new_list = jvm.java.util.ArrayList
        self.schema_json = jvm.org.apache.iceberg.SchemaParser.toJson
        self._read_tree = jvm.org.apache.iceberg.util.JsonUtil.mapper().readTree
        self._file_from_json = jvm.org.apache.iceberg.ContentFileParser.fromJson

    def content_file(self, text: str, spec: Any) -> Any:  # noqa: ANN401
        """Return Iceberg's object of a data or delete file from its JSON."""
        return self._file_from_json(self._read_tree(text), spec)


__all__ = ["IcebergClasses"]
