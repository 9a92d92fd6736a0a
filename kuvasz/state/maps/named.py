"""Which map a person names with ``--config``: asked where a command begins, and nowhere else."""

from __future__ import annotations

import os
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kuvasz.config import template
from kuvasz.config.secrets import SecretUrl, redact_url
from kuvasz.config.written.map_file import MapFile
from kuvasz.errors import ConfigError
from kuvasz.state.maps.database_map import DatabaseMap
from kuvasz.state.maps.sqlite_table import SqliteTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kuvasz.config.written.map_store import MapStore

_SQLITE: Final = "sqlite:"

_POSTGRES: Final = ("postgresql://", "postgres://")

_HINT: Final = "it is a file, `sqlite:map.db` or `postgresql://user@host/database`"


def named(text: str, environ: Mapping[str, str] | None = None) -> MapStore:
    """Return the store that a text names: a file, ``sqlite:map.db`` or ``postgresql://…``.

    Args:
        text: The text; a url may refer to what this machine has, as urls in a map do.
        environ: For the variables that it refers to; the process's own by default.

    Raises:
        ConfigError: It names none.
    """
    if text.startswith(_SQLITE):
        path = _sqlite_path(text)
        return DatabaseMap(SqliteTable(path), text, path.parent)
    if text.startswith(_POSTGRES):
        return _in_postgres(text, os.environ if environ is None else environ)
    if "://" in text:
        raise ConfigError(f"there is no map in {redact_url(text)}", hint=_HINT)
    return MapFile(Path(text))


def _sqlite_path(text: str) -> Path:
    """Return the path in ``sqlite:map.db``, or in ``sqlite:///srv/map.db``."""
    rest = text.removeprefix(_SQLITE)
    if rest.startswith("//"):
        rest = rest.removeprefix("//")
        if not rest.startswith("/"):
            raise ConfigError(
                f"--config {text}: SQLite has no hosts", hint="write sqlite:map.db or sqlite:///srv/map.db"
            )
        rest = f"/{rest.lstrip('/')}"
    if not rest:
        raise ConfigError(f"--config {text}: names no file", hint="write sqlite:map.db")
    return Path(rest)


def _in_postgres(text: str, environ: Mapping[str, str]) -> MapStore:
    from kuvasz.state.maps.postgres_table import PostgresTable

    shown = redact_url(text)
    try:
        filled = template.fill_url(text, environ, place="--config")
    except ValueError as error:
        raise ConfigError(f"--config {shown} {error}", hint="set it, or write the url without it") from None
    assert isinstance(filled.value, SecretUrl)
    url = urllib.parse.urlsplit(filled.value.get())
    if not url.path.strip("/"):
        raise ConfigError(f"--config {shown}: names no database", hint=_HINT)
    return DatabaseMap(PostgresTable(filled.value), text, None, filled.secrets)


__all__ = ["named"]
