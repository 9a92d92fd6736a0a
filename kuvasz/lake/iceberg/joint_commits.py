"""Whether a REST catalog commits several tables at once: a start needs to know, and so does `kuvasz check`.

Iceberg's client knows what a server lists, and takes one that lists nothing at its word. It sends no commit of no
table, which is what asks without changing anything; so that is sent by PyIceberg's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kuvasz.errors import LakeError

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog

    from kuvasz.config.model import Config

_OFFER: Final = "POST /v1/{prefix}/transactions/commit"

#: How a server says that it has no such endpoint; whatever else it says of a commit of no table, it has one.
_UNKNOWN: Final = frozenset({404, 405, 406, 501})
_FORBIDDEN: Final = frozenset({401, 403})

_PATIENCE_S: Final = 30


def prove(config: Config) -> str:
    """Ask the server for its endpoints, and where it does not say, for a commit of no table.

    Raises:
        LakeError: It does not offer it, or does not answer.
    """
    from pyiceberg.catalog.rest import RestCatalog

    lake = config.lake
    properties = {"uri": lake.catalog_uri, "warehouse": lake.warehouse_location, **lake.properties}
    try:
        why = _why_not(RestCatalog(lake.name, **properties), properties["warehouse"])
    except Exception as error:
        message = f"the catalog cannot be read: {(str(error).splitlines() or [type(error).__name__])[0]}"
        raise LakeError(message, hint="check `lake.uri`, `lake.properties` and the permissions") from error
    if why is None:
        return "an answer"
    raise LakeError(
        f"the catalog cannot change several tables in one commit: {why}",
        hint="leave `consistency` at table, or use a catalog that does: jdbc, or rest with commits of several tables",
    )


def _why_not(catalog: RestCatalog, warehouse: str) -> str | None:
    session = catalog._session  # PyIceberg has nothing of its own for it
    url = catalog.url("config", prefixed=False)
    told = session.get(url, params={"warehouse": warehouse}, timeout=_PATIENCE_S).json().get("endpoints")
    if told and _OFFER not in told:
        return f"it does not list {_OFFER}"
    answer = session.post(catalog.url("transactions/commit"), json={"table-changes": []}, timeout=_PATIENCE_S)
    if answer.status_code in _FORBIDDEN:
        return f"it does not let kuvasz: {answer.status_code} {answer.reason}"
    return f"{answer.status_code} {answer.reason}" if answer.status_code in _UNKNOWN else None


__all__ = ["prove"]
