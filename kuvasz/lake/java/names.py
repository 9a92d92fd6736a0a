"""Names of Java's classes, told apart from those of packages without a question to the JVM.

Py4J has the JVM look at each piece of a dotted name whether it is a class: `org`, `org.apache`, `org.apache.iceberg`
and so on are none, which it knows when it has been through all jars, and nobody keeps the answer. PySpark asks so 39
times for each exception that comes from Java (`pyspark.errors.exceptions.captured.convert_exception`), and kuvasz
166 times in a start. By the Java Language Specification (6.1) a package begins with a small letter and a class
with a capital, so nobody has to be asked.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass

#: Roots of the packages that PySpark, Iceberg and kuvasz name.
_ROOTS = ("java", "org", "py4j", "scala")

#: What PySpark names without its package (`pyspark.java_gateway`) again and again, where each package that may have
#: it is tried.
_IMPORTED = {
    name: f"org.apache.spark.api.python.{name}"
    for name in ("PythonRDD", "PythonUtils", "SerDeUtil", "SimplePythonFunction")
}


class JvmNames:
    """The classes and packages within a package, as attributes: `names.apache.iceberg.Schema`.

    Args:
        package: The package's full name.
        client: Py4J's, which calls them.
    """

    def __init__(self, package: str, client: Any) -> None:  # noqa: ANN401 (Py4J has no types)
        self._package = package
        self._client = client

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (a class, or names within)
        if name.startswith("_"):
            raise AttributeError(name)
        full = f"{self._package}.{name}"
        found = JavaClass(full, self._client) if name[0].isupper() else JvmNames(full, self._client)
        setattr(self, name, found)
        return found


def settle(jvm: Any) -> None:  # noqa: ANN401 (Py4J has no types)
    """Have the names of a JVM's view known, whoever uses it."""
    client = jvm._gateway_client
    for root in _ROOTS:
        setattr(jvm, root, JvmNames(root, client))
    for name, full in _IMPORTED.items():
        setattr(jvm, name, JavaClass(full, client))


__all__ = ["JvmNames", "settle"]
