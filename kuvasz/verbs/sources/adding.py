"""``kuvasz source add``: a source is looked at, written into the map, and begun by the kuvasz that runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from kuvasz.admin.sources import source_edits
from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.config.secrets import SecretUrl
from kuvasz.errors import ConfigError
from kuvasz.verbs import check
from kuvasz.verbs.sources.map_rewrite import MapRewrite

if TYPE_CHECKING:
    from kuvasz.config.load import Loaded
    from kuvasz.config.written.map_edit import Plain
    from kuvasz.source.check.finding import Finding


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """What a person says of it."""

    database: str  #: its group
    url: str = dataclasses.field(repr=False)  #: as the map is to have it, with references
    sid: str | None = None
    schemas: str | None = None
    replication_url: str | None = dataclasses.field(default=None, repr=False)  #: in the same way

    @property
    def name(self) -> str:
        """What kuvasz will call it."""
        return names.source_name(self.database, self.sid)


def run(loaded: Loaded, new: SourceEntry, *, is_checked: bool = True) -> dict[str, Any]:
    """Add a source; return what became of it, ready for JSON.

    Args:
        loaded: The map.
        new: The source.
        is_checked: Whether it is looked at before; one that is not there yet cannot be.

    Raises:
        ConfigError: The map would be faulty, or the source cannot be replicated: nothing is changed.
        Refused: The running kuvasz cannot go by the map then: the file is as it was.
    """
    said: dict[str, Plain] = {"url": new.url}
    more = {"sid": new.sid, "replication_url": new.replication_url, "schemas": new.schemas}
    said |= {key: value for key, value in more.items() if value is not None}
    rewrite = MapRewrite(loaded, source_edits.added(loaded.config, new.database, said))
    found = check.of_sources(rewrite.loaded.config, [new.name]) if is_checked else []
    if any(one.is_blocking for one in found):
        raise _unfit(new, found)
    is_running = rewrite.take_over()
    sources = [one for one in config_sources.resolve(rewrite.loaded.config) if one.name == new.name]
    return {
        "source": new.name,
        "is_running": is_running,
        "tables": [spec.identifier for source in sources for spec in source.tables],
        "has_password": any(_has_password(url) for url in (new.url, new.replication_url or "")),
        "advice": check.as_json([one for one in found if not one.ok]),
    }


def _unfit(new: SourceEntry, found: list[Finding]) -> ConfigError:
    wrong = [one for one in found if one.is_blocking]
    told = "".join(f"\n  {one.table or new.name}: {one.check}: {one.value}\n    {one.fix}" for one in wrong)
    return ConfigError(
        f"{new.name} cannot be replicated, and is not added:{told}",
        hint="mend it, or add it all the same with --no-check, to be tried until it can be",
    )


def _has_password(url: str) -> bool:
    """Whether a password stands in the url itself, and in no reference."""
    hidden = SecretUrl(url).redacted()
    return "${" not in url and hidden != url


def render(answer: dict[str, Any]) -> str:
    """Return the answer in words."""
    where = (
        "it is begun: see `kuvasz source list`"
        if answer["is_running"]
        else "no kuvasz answers here: it counts from the next start on"
    )
    lines = [f"added: {answer['source']}, {len(answer['tables'])} tables; {where}"]
    lines += [f"  {one['table'] or one['source']}: {one['check']}: {one['value']}" for one in answer["advice"]]
    if answer["has_password"]:
        lines.append("its password stands in the map now: `${VAR}` or `${file:…}` in its place keeps it out")
    return "\n".join(lines)


__all__ = ["SourceEntry", "render", "run"]
