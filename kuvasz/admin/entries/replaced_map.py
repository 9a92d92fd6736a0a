"""What a text of the map may not bring that comes by the API, beside references: see `map_references`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kuvasz.errors import ConfigError
from kuvasz.source import conninfo
from kuvasz.sync.rules import map_difference

if TYPE_CHECKING:
    from kuvasz.config.model import Config, CopyConfig
    from kuvasz.config.secrets import SecretUrl

_LATER: Final = (
    "what comes by HTTP counts at once, or not at all: what only a start goes by nobody would see now;"
    " `kuvasz map import` takes it, or write it into the file"
)
_LENT: Final = (
    "the password of replication_url goes where url leads, and is not sent elsewhere by HTTP: `kuvasz map import`"
    " takes it, or write it into the file"
)
_BORROWED: Final = (
    "name its user and password in the url: what it leaves out is as in the source's, and a password that the map has"
    " goes to the servers that it names for it alone; `kuvasz map import` takes it, or write it into the file"
)


def refuse(before: Config, after: Config) -> None:
    """Refuse what would have a secret of the map sent elsewhere than the map says, or counts from a start on. Blocks.

    Secrets of the lake, and of Spark, go where what stands beside them says, and Spark runs what its settings name.

    Args:
        before: The map that runs, as it is written.
        after: The map that is to run, as it is written.

    Raises:
        ConfigError: There is such a thing.
    """
    if later := list(map_difference.needing_restart(before, after)):
        counts = "counts" if len(later) == 1 else "count"
        raise ConfigError(f"{', '.join(later)} {counts} from the next start on", hint=_LATER)
    known = _lent(before)
    if lent := [where for where in _lent(after) if where not in known and where[0] in {role for role, _ in known}]:
        raise ConfigError(f"{lent[0][1]} would be sent the password of another source's replication_url", hint=_LENT)
    for server in ("", *before.copy.servers, *after.copy.servers):
        wanted = _standby(after.copy, server)
        if wanted is not None and wanted != _standby(before.copy, server) and not conninfo.has_user(wanted.get()):
            place = f"copy.servers.{server}.from" if server in after.copy.servers else "copy.from"
            raise ConfigError(
                f"{place} would be sent the password of the sources that it stands in for", hint=_BORROWED
            )


def _lent(config: Config) -> list[tuple[SecretUrl, str]]:
    """Return who replicates, and the servers that he asks."""
    urls = [url for group in config.databases for url in group.urls]
    return [(url.replication_url, conninfo.servers(url.url.get())) for url in urls if url.replication_url is not None]


def _standby(copy: CopyConfig, server: str) -> SecretUrl | None:
    """Return what tables of a server are read from, as far as the map says so under this name."""
    own = copy.servers.get(server)
    return copy.copied_from if own is None or "copied_from" not in own.model_fields_set else own.copied_from


__all__ = ["refuse"]
