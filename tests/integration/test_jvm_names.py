"""The names of Java's classes are what Py4J finds when it asks the JVM."""

from __future__ import annotations

import pytest
from py4j.java_gateway import JVMView
from pyspark.sql import SparkSession

from kuvasz.lake.java import names

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", names._IMPORTED)
def test_a_class_that_pyspark_imports_is_the_one_the_jvm_finds(spark_session: SparkSession, name: str) -> None:
    jvm = spark_session._jvm
    assert jvm is not None
    found = JVMView.__getattr__(jvm, name)
    assert getattr(jvm, name)._fqn == found._fqn


def test_the_roots_are_packages(spark_session: SparkSession) -> None:
    jvm = spark_session._jvm
    assert jvm is not None
    assert jvm.java.lang.System.nanoTime() > 0
    assert jvm.org.apache.iceberg.Schema._fqn == JVMView.__getattr__(jvm, "org").apache.iceberg.Schema._fqn
