"""The classes of Iceberg and Java that every table needs, looked up once: each dot of a Java name is a round trip."""

from __future__ import annotations

import functools
import threading
from typing import Any

from pyspark.sql import SparkSession

from kuvasz.lake.jvm import commit_files, jvm_calls
from kuvasz.lake.jvm.commit_files import CommitFiles
from kuvasz.lake.jvm.jvm_calls import JvmCalls
from kuvasz.lake.jvm.plain_calls import PlainCalls


class IcebergClasses:
    """What a catalog's tables are handed of the JVM.

    Args:
        session: Whose JVM it is.
    """

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session._jvm
        self.jvm = jvm
        executors = jvm.org.apache.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors
        direct = executors.newDirectExecutorService()  # runs what it is given in the thread that gives it
        self.plain = PlainCalls(jvm, direct)
        self.calls: JvmCalls | PlainCalls = jvm_calls.install(jvm, direct) or self.plain
        self._compiling = threading.Lock()  # of two of them neither would know what the other one remembers
        self.new_list = jvm.java.util.ArrayList
        iceberg = jvm.org.apache.iceberg
        self.schema_json = iceberg.SchemaParser.toJson
        self.snapshot_json = iceberg.SnapshotParser.toJson
        self.spec_json = iceberg.PartitionSpecParser.toJson
        self.order_json = iceberg.SortOrderParser.toJson

    @property
    def commit_files(self) -> CommitFiles | None:
        """How commits write to a store; compiled when the first table needs it, once for all."""
        with self._compiling:
            return self._commit_files

    @functools.cached_property
    def _commit_files(self) -> CommitFiles | None:
        return commit_files.install(self.jvm)


__all__ = ["IcebergClasses"]
