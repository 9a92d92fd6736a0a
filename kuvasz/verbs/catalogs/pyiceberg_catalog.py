"""A catalog as PyIceberg opens it, from the same options that Spark gets.

The Iceberg spec knows the catalogs' properties by the same names in Java and Python, except those of a jdbc catalog.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from kuvasz.config.model import CatalogType, LakeConfig
from kuvasz.errors import LakeError

if TYPE_CHECKING:
    from pyiceberg.table import Table

_HINT = "check `lake.uri`, `lake.properties` and the permissions"
_JDBC_POSTGRES = "jdbc:postgresql://"

#: SQLSTATE of a table that is not there (manual, appendix A).
_UNDEFINED_TABLE = "42P01"

#: From PostgreSQL 15 on nobody but its owner may make tables in `public` (release notes).
_MAY_CREATE = (
    "SELECT quote_ident(current_user), quote_ident(current_schema()),"
    " has_schema_privilege(current_schema(), 'CREATE')"
)


def opened(lake: LakeConfig) -> Catalog:
    """Open the map's catalog.

    Raises:
        LakeError: It cannot be opened.
    """
    try:
        return load_catalog(lake.name, **catalog_properties(lake))
    except Exception as error:
        raise LakeError(f"the catalog cannot be opened: {_told(error)}", hint=_HINT) from error


def load(catalog: Catalog, name: str) -> Table | None:
    """Return a table, None if there is none.

    Raises:
        LakeError: The catalog does not answer.
    """
    try:
        return catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except Exception as error:
        if _is_to_be_made(error):
            return None
        raise LakeError(f"the catalog cannot be read: {_told(error)}", hint=_HINT) from error


def prove(catalog: Catalog) -> str:
    """Ask a catalog for its namespaces and return where it is.

    Raises:
        LakeError: It does not answer, or its tables cannot be made.
    """
    try:
        catalog.list_namespaces()
    except Exception as error:
        if _is_to_be_made(error):
            _prove_schema(catalog)
            return "to be made"
        raise LakeError(f"the catalog cannot be read: {_told(error)}", hint=_HINT) from error
    return "an answer"


def _is_to_be_made(error: Exception) -> bool:
    """Return whether a jdbc catalog has no tables yet: a start makes them."""
    if not isinstance(error, DBAPIError):
        return False
    return getattr(error.orig, "sqlstate", None) == _UNDEFINED_TABLE or "no such table" in str(error.orig)


def _told(error: Exception) -> str:
    """Return what a catalog says, without SQLAlchemy's statement and links."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return (str(cause).splitlines() or [type(cause).__name__])[0]


def _prove_schema(catalog: Catalog) -> None:
    """Find out whether a catalog's tables may be made where its connections make them.

    Raises:
        LakeError: They may not.
    """
    if not isinstance(catalog, SqlCatalog) or catalog.engine.dialect.name != "postgresql":
        return
    with catalog.engine.connect() as connection:
        user, schema, may_create = connection.execute(text(_MAY_CREATE)).one()
    if not may_create:
        raise LakeError(
            f"the catalog cannot be made: {user} has no CREATE on schema {schema}",
            hint=f"at the catalog's database: GRANT CREATE ON SCHEMA {schema} TO {user};",
        )


def catalog_properties(lake: LakeConfig) -> dict[str, str]:
    """Return the options of a catalog as PyIceberg takes them."""
    given = dict(lake.live_properties)
    properties = {"type": str(lake.type), "uri": lake.catalog_uri, "warehouse": lake.warehouse_location, **given}
    if lake.type is CatalogType.JDBC:
        # To open a catalog must not make its tables.
        properties |= {"type": "sql", "uri": _sql_uri(lake, given), "init_catalog_tables": "false"}
    return properties


def _sql_uri(lake: LakeConfig, properties: Mapping[str, str]) -> str:
    if lake.sqlite_file is not None:
        return f"sqlite:///{lake.sqlite_file}"
    if not lake.uri.startswith(_JDBC_POSTGRES):
        raise LakeError(f"lake.uri: {lake.uri.partition('?')[0]} is no catalog that can be looked at without Spark",
                        hint="use jdbc:sqlite: or jdbc:postgresql:")  # fmt: skip
    rest, _, query = lake.uri.removeprefix(_JDBC_POSTGRES).partition("?")
    parameters = dict(urllib.parse.parse_qsl(query))
    user = properties.get("jdbc.user") or parameters.pop("user", "")
    password = properties.get("jdbc.password") or parameters.pop("password", "")
    account = urllib.parse.quote(user, safe="") + (f":{urllib.parse.quote(password, safe='')}" if password else "")
    return f"postgresql+psycopg://{account}@{rest}" if account else f"postgresql+psycopg://{rest}"


__all__ = ["catalog_properties", "load", "opened", "prove"]
