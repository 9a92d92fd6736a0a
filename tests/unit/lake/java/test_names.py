from __future__ import annotations

import types

import pytest

from kuvasz.lake.java.names import JvmNames, settle


def view() -> types.SimpleNamespace:
    """Return what stands for Py4J's view of a JVM that is asked for nothing."""
    client = types.SimpleNamespace(gateway_property=types.SimpleNamespace(pool=None), converters=())
    return types.SimpleNamespace(_gateway_client=client)


def test_a_class_begins_with_a_capital_and_all_else_is_a_package() -> None:
    jvm = view()
    settle(jvm)
    assert jvm.org.apache.iceberg.Schema._fqn == "org.apache.iceberg.Schema"
    assert getattr(jvm.org.apache.spark, "Registry$")._fqn == "org.apache.spark.Registry$"
    assert jvm.PythonRDD._fqn == "org.apache.spark.api.python.PythonRDD"
    assert isinstance(jvm.java.util, JvmNames)
    assert jvm.java.util.ArrayList is jvm.java.util.ArrayList, "kept"


def test_what_python_looks_for_in_any_object_is_no_name_of_java() -> None:
    jvm = view()
    settle(jvm)
    with pytest.raises(AttributeError):
        _ = jvm.org._ipython_display_
    assert not hasattr(jvm.org.apache, "__deepcopy__")
