"""Exceptions of Spark's JVM, turned into ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from kuvasz.errors import (
    ForeignChange,
    LakeError,
    OutcomeUnknown,
    SchemaError,
    TableGone,
    TableStuck,
    place_of,
    resync_of,
)
from kuvasz.lake.java import region


@contextlib.contextmanager
def translated(place: str) -> Iterator[None]:
    """Turn the JVM's exceptions into ours."""
    try:
        yield
    except Py4JJavaError as error:
        kind = class_of(error)
        text = f"{place}: {_message(error)}"
        if kind.endswith("CommitStateUnknownException"):
            raise OutcomeUnknown(
                text, hint="the catalog is asked what it holds before anything is repeated"
            ) from error
        if kind.endswith(("ValidationException", "CommitFailedException")):
            raise ForeignChange(text, hint="another writer changed the table at the same time") from error
        if kind.endswith("NoSuchTableException"):
            raise gone(place.rpartition(" ")[2]) from error
        if kind.endswith("AlreadyExistsException"):
            raise SchemaError(text, hint="another process created it at the same time: start again") from error
        hint = region.HINT if "Unable to load region" in text else "check the catalog and the warehouse"
        raise LakeError(text, hint=f"{hint}; it is tried again") from error
    except PySparkException as error:  # PySpark converts IllegalArgumentException and the like
        message = f"{place}: {' '.join(str(error).split())}"
        raise SchemaError(message, hint="report it with the table's definition") from error
    except (Py4JError, ConnectionError) as error:
        raise LakeError(f"{place}: spark's jvm does not answer: {error}", hint="see its log; start again") from error


def gone(name: str) -> TableGone:
    """Return the error of a table that is no longer in the lake."""
    hint = f"restore it, or copy it again: {resync_of(name)}"
    return TableGone(f"{place_of(table=name)}: someone dropped it from the lake", hint=hint)


def lost(name: str, error: Py4JJavaError) -> TableStuck:
    """Return the error of a table that the catalog names, and whose metadata file the store does not have."""
    hint = "put its files back, or drop it from the catalog, and it is copied anew; it is tried again"
    return TableStuck(f"{place_of(table=name)}: {_message(error)}", hint=hint)


def class_of(error: Py4JJavaError) -> str:
    """Return the full name of the exception's class."""
    return str(error.java_exception.getClass().getName())


def _message(error: Py4JJavaError) -> str:
    exception = error.java_exception
    parts: list[str] = []
    while exception is not None and len(parts) < 4:
        text = str(exception.getMessage() or exception.getClass().getSimpleName()).splitlines()[0][:300]
        if text not in parts:
            parts.append(text)
        exception = exception.getCause()
    return ": ".join(parts)


__all__ = ["class_of", "gone", "lost", "translated"]
