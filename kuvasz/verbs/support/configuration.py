"""The part with the configuration: what `kuvasz config` shows, and of what people wrote freely still less."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from kuvasz.config import effective, secrets
from kuvasz.verbs.support.part import PartFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.config.load import Loaded
    from kuvasz.config.model import Config, DatabaseConfig, TableConfig

#: Comments, texts and names as Spark's SQL has them; of the names alone nothing is left out.
_QUOTED = re.compile(
    r"--[^\n]*|/\*.*?\*/|[rR]?'(?:[^'\\]|\\.)*'|[rR]?\"(?:[^\"\\]|\\.)*\"|(?P<name>`[^`]*`)|['\"].*", re.DOTALL
)
_LEFT_OUT = "'…'"

#: What Spark hands on: to a file system, a catalog, and as variables to its processes.
_HANDED_ON = (
    "spark.hadoop.", "spark.sql.catalog.", "spark.executorEnv.", "spark.kubernetes.driverEnv.",
    "spark.yarn.appMasterEnv.",
)  # fmt: skip

#: What cannot be a secret, whatever its property is called.
_HARMLESS = re.compile(r"(?i)true|false|\d{1,9}|\d{1,6}(\.\d{1,6})?|\d{1,6} ?[kmgt]?i?b?|\d{1,6} ?(ms|s|m|h|d|min)")


def gather(loaded: Loaded) -> PartFiles:
    """Return the configuration as it was resolved, each value with its origin."""
    return PartFiles(
        files={"configuration.yaml": effective.yaml(dataclasses.replace(loaded, config=shown(loaded.config)))}
    )


def shown(config: Config) -> Config:
    """Return a configuration to be given away: without values of properties that nobody knows, and texts in SQL."""
    lake = config.lake.model_copy(update={"properties": _properties(config.lake.properties)})
    spark = config.spark.model_copy(update={"conf": _conf(config.spark.conf)})
    databases = tuple(map(_database, config.databases))
    return config.model_copy(update={"lake": lake, "spark": spark, "databases": databases})


def without_texts(expression: str) -> str:
    """Return an expression of Spark's SQL without its texts and comments: they may be values of rows."""
    return _QUOTED.sub(lambda found: found[0] if found["name"] else _LEFT_OUT, expression)


def _properties(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value if _is_harmless(name, value) else secrets.HIDDEN for name, value in given.items()}


def _conf(given: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings; what goes on to others, and is theirs to name, is as any property of the lake."""
    return {**given, **_properties({name: value for name, value in given.items() if name.startswith(_HANDED_ON)})}


def _is_harmless(name: str, value: str) -> bool:
    return secrets.is_plain_name(name) or _HARMLESS.fullmatch(str(value).strip()) is not None


def _database(group: DatabaseConfig) -> DatabaseConfig:
    tables = {name: _table(table) for name, table in group.tables.items()}
    return group.model_copy(update={"tables": tables})


def _table(table: TableConfig) -> TableConfig:
    changes: dict[str, object] = {}
    if table.filter is not None:
        changes["filter"] = without_texts(table.filter)
    if table.set is not None:
        changes["set"] = {name: without_texts(expression) for name, expression in table.set.items()}
    if table.route is not None:  # its values are in the names of its targets
        changes["route"] = table.route.model_copy(update={"by": without_texts(table.route.by)})
    return table.model_copy(update=changes)


__all__ = ["gather", "shown", "without_texts"]
