from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import IllegalArgumentException

from kuvasz.errors import ForeignChange, KuvaszError, LakeError, OutcomeUnknown, SchemaError, TableGone
from kuvasz.lake.java import region
from kuvasz.lake.jvm.jvm_errors import translated


class JavaException:
    """A throwable of the JVM."""

    _target_id = "o1"
    _gateway_client = SimpleNamespace(converters=None, is_connected=False)

    def __init__(self, name: str, message: str | None, cause: JavaException | None = None) -> None:
        self._name, self._message, self._cause = name, message, cause

    def getClass(self) -> SimpleNamespace:  # noqa: N802 (Java's name)
        return SimpleNamespace(getName=lambda: self._name, getSimpleName=lambda: self._name.rpartition(".")[2])

    def getMessage(self) -> str | None:  # noqa: N802 (Java's name)
        return self._message

    def getCause(self) -> JavaException | None:  # noqa: N802 (Java's name)
        return self._cause


def raised(error: Exception) -> KuvaszError:
    with pytest.raises(KuvaszError) as caught, translated("load the table shop.items"):
        raise error
    assert caught.value.__cause__ is error
    return caught.value


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("org.apache.iceberg.exceptions.CommitStateUnknownException", OutcomeUnknown),
        ("org.apache.iceberg.exceptions.ValidationException", ForeignChange),
        ("org.apache.iceberg.exceptions.CommitFailedException", ForeignChange),
        ("org.apache.iceberg.exceptions.AlreadyExistsException", SchemaError),
        ("java.io.IOException", LakeError),
    ],
)
def test_a_java_exception_becomes_ours(name: str, kind: type[KuvaszError]) -> None:
    error = raised(Py4JJavaError("", JavaException(name, "no\nat org.apache")))
    assert type(error) is kind
    assert str(error).splitlines()[0] == "load the table shop.items: no"


def test_a_region_that_is_missing_is_told_with_the_way_to_give_it() -> None:
    text = "Unable to load region from any of the providers in the chain"
    error = raised(Py4JJavaError("", JavaException("software.amazon.awssdk.core.exception.SdkClientException", text)))
    assert error.hint == f"{region.HINT}; it is tried again"


def test_a_table_that_is_gone_is_named() -> None:
    error = raised(Py4JJavaError("", JavaException("org.apache.iceberg.exceptions.NoSuchTableException", "gone")))
    assert type(error) is TableGone
    assert "table shop.items: someone dropped it from the lake" in str(error)


def test_causes_are_told_each_once() -> None:
    last = JavaException("java.net.ConnectException", None)
    middle = JavaException("java.io.IOException", "cannot write", last)
    error = raised(Py4JJavaError("", JavaException("java.lang.RuntimeException", "cannot write", middle)))
    assert "load the table shop.items: cannot write: ConnectException" in str(error)


def test_what_pyspark_converts_is_of_the_schema() -> None:
    assert type(raised(IllegalArgumentException("no such type"))) is SchemaError


@pytest.mark.parametrize("error", [Py4JNetworkError("closed"), ConnectionRefusedError("refused")])
def test_a_jvm_that_does_not_answer_is_an_error_of_the_lake(error: Exception) -> None:
    found = raised(error)
    assert type(found) is LakeError
    assert f"load the table shop.items: spark's jvm does not answer: {error}" in str(found)
