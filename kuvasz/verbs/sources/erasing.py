"""``kuvasz source erase``: all rows of a tenant leave the lake for good, and a receipt says so."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from kuvasz.admin.about import EventRows
from kuvasz.admin.sources import mapped_url
from kuvasz.admin.sources.mapped_url import SourceSelection
from kuvasz.config import names
from kuvasz.config import sources as config_sources
from kuvasz.config.model import UrlConfig
from kuvasz.config.secrets import SecretUrl
from kuvasz.errors import ConfigError
from kuvasz.events import Event
from kuvasz.lake.erasure import erasure
from kuvasz.lake.erasure.journal import Journal
from kuvasz.lake.erasure.rows import AboutRows, RowsToErase, SidRows
from kuvasz.source import conninfo
from kuvasz.state.store import state_of
from kuvasz.sync.pattern_tables import PatternTables
from kuvasz.sync.rules import members
from kuvasz.sync.rules.targets import target_of
from kuvasz.verbs.sources import dropping, erased_log, erased_state

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from kuvasz.config.load import Loaded
    from kuvasz.config.model import Config
    from kuvasz.lake.erasure.erasure import Erasure
    from kuvasz.lake.java.signing_key import SigningKey
    from kuvasz.ports import Target

#: What is done meanwhile: a cluster's processes that read wait for it as well.
ERASES: Final = "erases rows"

#: What the receipt is, for whoever reads it years later.
_KIND: Final = "kuvasz erasure receipt"
_VERSION: Final = 1

#: What no erasure looks at; every receipt says so.
_ELSEWHERE: Final = (
    "log files, backups, and copies that others made",
    "versions that an object store keeps of objects that were removed",
    "texts about others, such as events that no source is named in",
    "state folders of other processes of a cluster, and the source itself",
    "pages and write-ahead logs of servers from which rows of a catalog or coordinator were removed",
)

_SHOWN: Final = 20

#: What who is not sure is told, beside what would go.
UNSURE: Final = "add --yes if that is meant; let no other engine write to these tables meanwhile"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """Who is to leave."""

    sid: str
    databases: tuple[str, ...]  #: the groups that it is, or was, a source of
    mapped: tuple[str, ...] = ()  #: names of its sources that the map still has

    @property
    def sources(self) -> frozenset[str]:
        """What kuvasz calls its sources."""
        return frozenset(names.source_name(database, self.sid) for database in self.databases)

    def describe(self) -> str:
        """Return it in words."""
        return f"source {self.sid!r} of {', '.join(self.databases)}"


class Seal:
    """What stands below a receipt: a signature, if somebody gave a key.

    Args:
        work: Its JVM signs, which outlives the session.
        key: None: nobody signs.

    Raises:
        ConfigError: The key cannot sign.
    """

    def __init__(self, work: Erasure, key: SigningKey | None) -> None:
        self._work = work
        self._key = key
        self.of("")  # before anything is done

    def of(self, digest: str) -> dict[str, Any]:
        """Return what is added to a receipt of this digest."""
        if self._key is None:
            return {}
        return {"signature": {"algorithm": "Ed25519", "of": "sha256", "base64": self._work.sign(self._key, digest)}}


def run(
    loaded: Loaded,
    choice: SourceSelection,
    *,
    is_sure: bool,
    with_tags: bool = False,
    signs_with: SigningKey | None = None,
    session: Any = None,  # noqa: ANN401 (Spark's, which is known to `lake` alone)
    is_owner: bool = False,
) -> dict[str, Any]:
    """Erase all rows of a sid, after its sources left the map, and return the receipt.

    Args:
        loaded: The map.
        choice: Which sid, and of which group.
        is_sure: Without it nothing is done.
        with_tags: Tags and branches that hold older snapshots go as well; else they are refused.
        signs_with: Signs the receipt; None: it is not signed.
        session: A running Spark; started and stopped otherwise.
        is_owner: Whoever calls owns the state, and nothing runs.

    Raises:
        ConfigError: Nobody is sure, the key cannot sign, or something stands against it: nothing is changed.
        StateTaken: A kuvasz runs.
        KuvaszError: It could not be done. It may be begun again, and goes on where it was.
    """
    config = loaded.config
    if not is_sure:
        raise ConfigError(would(config, tenant_of(config, choice)), hint=UNSURE)
    asked = {"sid": choice.sid, "database": choice.database}
    with contextlib.nullcontext() if is_owner else state_of(config).own(ERASES):
        journal = Journal(config.pipeline.state_folder, asked)
        tenant = _begun(config, journal) if journal.is_begun else tenant_of(config, choice)
        _refuse_others(config, tenant)
        targets = targets_of(config, tenant)
        with erasure.opened(config, session) as work:
            seal = Seal(work, signs_with)
            everything = [*targets, *work.about()]
            work.refuse_branches(everything)
            if not with_tags:
                work.refuse_names(everything)
            begin(journal, sid=tenant.sid, databases=list(tenant.databases), with_tags=with_tags)
            if tenant.mapped:
                _drop(loaded, choice, journal, is_alone=is_owner)
            rows: list[tuple[Target, RowsToErase]] = [
                (target, SidRows(sid=tenant.sid, sources=tenant.sources)) for target in targets
            ]
            rows += [(target, AboutRows(sid=tenant.sid, sources=tenant.sources)) for target in work.about()]
            work.run(rows, journal)
            journal.told["other_tables"] = work.others(targets)
            journal.told["outside"] = {"log": erased_log.forget(config)}
            if not is_owner:
                tell(config, journal, work)
        journal.told["outside"] |= erased_state.forget(config, journal.told.get("tables", {}), tenant.sources)
        return finish(journal, {"sid": tenant.sid, "databases": list(tenant.databases)}, tenant.sid, seal)


# What is meant


def tenant_of(config: Config, choice: SourceSelection) -> Tenant:
    """Return who is meant: sources of the map, else one that has left it.

    Raises:
        ConfigError: None is, or too many are.
    """
    if choice.sid is None or "*" in choice.sid or "*" in (choice.database or ""):
        raise ConfigError(
            "kuvasz source erase: which source?", hint="name one, and no pattern: --sid de, with its --database"
        )
    chosen = [one for one in mapped_url.all_of(config) if choice.has_whole(one)]
    sids = {one.url.sid for one in chosen}
    if None in sids or len(sids) > 1:
        raise ConfigError(
            f"{choice.describe()} has no sid of its own: nobody knows which rows are its",
            hint="name a source by its sid; where a table has no column sid, drop the table from the lake",
        )
    known = [group.database for group in config.databases if choice.database in {None, group.database}]
    if not known:
        raise ConfigError(f"the map has no {choice.describe()}", hint="`kuvasz source list` lists its groups")
    named = [name for name in known if choice.sid.startswith(f"{name}_")]
    if not chosen and named and choice.database is None:
        raise ConfigError(
            f"the map has no {choice.describe()}: is that its name, of which only the rest is in the rows?",
            hint=f"name its group and its sid: --database {named[0]} --sid {choice.sid.removeprefix(f'{named[0]}_')}",
        )
    databases = dict.fromkeys(one.group.database for one in chosen) or dict.fromkeys(known)
    return Tenant(
        sid=next(iter(sids), choice.sid) or choice.sid,
        databases=tuple(databases),
        mapped=tuple(one.name for one in chosen),
    )


def _begun(config: Config, journal: Journal) -> Tenant:
    """Return whom an earlier call has begun to erase, whatever the map has of it by now."""
    sid, databases = journal.told["sid"], tuple(journal.told["databases"])
    mapped = (one for one in mapped_url.all_of(config) if one.url.sid == sid and one.group.database in databases)
    return Tenant(sid=sid, databases=databases, mapped=tuple(one.name for one in mapped))


def targets_of(config: Config, tenant: Tenant) -> list[Target]:
    """Return all targets that may have rows of a tenant: those of its groups, as if it were in the map.

    Those of tables that are not `enabled` are among them, and those that patterns took in for it alone, as they were
    seen last: with its sources the map forgets these.
    """
    groups = [
        group.model_copy(update={"urls": (*group.urls, UrlConfig(url=_NOWHERE, sid=tenant.sid))})
        if group.database in tenant.databases and all(url.sid != tenant.sid for url in group.urls)
        else group
        for group in config.databases
    ]
    whole = config.model_copy(update={"databases": tuple(groups)})
    found = {
        spec.identifier: target_of(spec)
        for known in (whole, PatternTables(state_of(config).feeds).applied(whole))
        for source in config_sources.resolve(config_sources.with_all_tables(known))
        if source.database in tenant.databases
        for spec in source.tables
    }
    return list(found.values())


_NOWHERE: Final = SecretUrl("postgresql://nobody@nowhere/none")


def would(config: Config, tenant: Tenant) -> str:
    """Return what an erasure would do, for who is not sure yet."""
    tables = sorted(target.name for target in targets_of(config, tenant))
    listed = ", ".join(tables[:_SHOWN]) + (f" and {len(tables) - _SHOWN} more" if len(tables) > _SHOWN else "")
    mapped = ", ".join(tenant.mapped)
    first = f"takes {mapped} out of the map with slot and publication, and " if mapped else ""
    return (
        f"source erase {first}removes all rows of {tenant.describe()} for good, with all older snapshots,"
        f" from: {listed}"
    )


# What stands against it


def _refuse_others(config: Config, tenant: Tenant) -> None:
    """Refuse to erase what would come back, or lies where nobody can take it out.

    Raises:
        ConfigError: It would.
        SourceError: Nobody can say which tenants there are: their server does not answer.
    """
    for source in config_sources.resolve(config):
        if source.database in tenant.databases and any(spec.schemas is not None for spec in source.tables):
            with contextlib.closing(conninfo.connect(source.url.get())) as connection:
                tenants = {spec.tenant for spec in members.found(source, connection).tables}
            if tenant.sid in tenants:
                raise ConfigError(
                    f"source {source.name} has a schema of the tenant {tenant.sid!r}: its rows would come back",
                    hint="drop or rename the schema, or have `schemas` take it in no more, and begin again",
                )
    erased_log.refuse_staged(config)


# What is done


def begin(journal: Journal, **facts: Any) -> None:  # noqa: ANN401 (JSON)
    """Have a journal begin with what is known, unless an earlier call has."""
    if not journal.is_begun:
        journal.told |= {"begun_at": _now(), **facts}
        journal.save()


def _drop(loaded: Loaded, choice: SourceSelection, journal: Journal, *, is_alone: bool) -> None:
    answer = dropping.run(loaded, choice, drops_slot=True, is_sure=True, is_alone=is_alone)
    journal.told["dropped"] = {"sources": answer["sources"], "steps": answer["steps"]}
    journal.save()


def tell(config: Config, journal: Journal, work: Erasure) -> None:
    """Tell the lake, if it has a table for that, as a kuvasz does that runs while it erases."""
    if config.lake.about is not None:
        event = Event.ERASED if _is_clean(journal) else Event.ERASED_IN_PART
        work.tell(list(EventRows(config.lake.about).of(event, {"what": journal.id})))


def _is_clean(journal: Journal) -> bool:
    told = journal.told
    return all(table["is_clean"] for table in told.get("tables", {}).values()) and not _staged(told)


def finish(journal: Journal, erased: dict[str, Any], name: str, seal: Seal) -> dict[str, Any]:
    """Make the receipt of an erasure whose work is done, keep it, and return it with where it is."""
    told = journal.told
    tables = {
        table: {what: found[what] for what in
                ("rows", "files_removed", "snapshots_expired", "dropped_names", "scan", "is_clean")}
        for table, found in told.get("tables", {}).items()
    }  # fmt: skip
    receipt: dict[str, Any] = {
        "kind": _KIND,
        "version": _VERSION,
        "id": journal.id,
        "erased": erased,
        "begun_at": told["begun_at"],
        "ended_at": _now(),
        "dropped": told.get("dropped"),
        "tables": tables,
        "outside": told["outside"],
        "other_tables": told.get("other_tables", []),
        "at_source": told.get("at_source", []),
        "not_looked_at": list(_ELSEWHERE),
        "is_clean": _is_clean(journal),
    }
    receipt["sha256"] = digest(receipt)
    receipt |= seal.of(receipt["sha256"])
    safe = "".join(letter if letter.isalnum() else "_" for letter in name)[:40]
    when = receipt["ended_at"].translate({ord(letter): None for letter in "-:"})[:15]
    path: Path = journal.finish(receipt, f"receipt-{when}-{safe}-{journal.id}")
    return {**receipt, "file": str(path)}


def _staged(told: dict[str, Any]) -> int:
    """Return how many objects a cluster's log has."""
    return int(told.get("outside", {}).get("log", {}).get("objects", 0))


def digest(receipt: dict[str, Any]) -> str:
    """Return the SHA-256 of a receipt without its own and its signature: of its JSON, keys sorted, without blanks."""
    bare = {key: value for key, value in receipt.items() if key not in {"sha256", "signature", "file"}}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def exit_code(receipt: dict[str, Any]) -> int:
    """Return 1 if a scan found something, or a slot is left that should have gone."""
    steps: Collection[dict[str, Any]] = (receipt["dropped"] or {}).get("steps", ())
    return int(not receipt["is_clean"] or any(step["error"] is not None for step in steps))


def render(receipt: dict[str, Any]) -> str:
    """Return the receipt in words."""
    lines = []
    for step in (receipt["dropped"] or {}).get("steps", ()):
        lines.append(f"{step['source']}: {step['what']} {step['name']}: {step['outcome']}")
        lines += [f"  {step[what]}" for what in ("error", "hint") if step[what]]
    for name, table in receipt["tables"].items():
        lines.append(
            f"{name}: {table['rows']} rows erased, {table['files_removed']} files removed,"
            f" {table['snapshots_expired']} snapshots expired"
        )
        lines += [f"  {named}: tag or branch removed" for named in table["dropped_names"]]
        lines += _found(table["scan"])
    lines += [_at_source(one) for one in receipt["at_source"]]
    lines += [f"{name}: not looked at, it is none of the map's" for name in receipt["other_tables"]]
    if staged := _staged(receipt):
        lines.append(
            f"cluster.log: {staged} objects came meanwhile, perhaps with such rows: begin again once it is empty"
        )
    if not any(table["rows"] for table in receipt["tables"].values()):
        lines.append("there were no such rows in any table: is it named as the rows have it?")
    lines.append("nothing was found of it any more" if receipt["is_clean"] else "SOMETHING IS LEFT: see above")
    lines.append(f"receipt: {receipt['file']}")
    return "\n".join(lines)


def _at_source(one: dict[str, Any]) -> str:
    if one["why_not"]:
        return f"{one['source']}: nobody knows whether it has the row still: {one['why_not']}"
    if one["rows"]:
        return f"{one['source']}: it has the row still: its next change, or another copy, brings it back"
    return f"{one['source']}: it has no such row"


def _found(scan: dict[str, Any]) -> Sequence[str]:
    return [
        *([f"  {scan['rows_found']} rows are there"] if scan["rows_found"] else []),
        *([f"  {scan['rows_naming_it']} rows of other keys have it in `_old_key`: erase their keys, too"]
          if scan.get("rows_naming_it") else []),
        *([f"  {scan['rows_unclear']} rejected rows may be it, for their keys cannot be told: --with-unclear erases"
           " them, too"] if scan.get("rows_unclear") else []),
        *([f"  {scan['snapshots']} snapshots are there"] if scan["snapshots"] > 1 else []),
        *([f"  {scan['entries_of_removed_files']} entries of removed files are there"]
          if scan["entries_of_removed_files"] else []),
        *(f"  {name}: tag or branch" for name in scan["tags_and_branches"]),
        *(f"  {name}: a file that the table does not need" for name in scan["unneeded_files"]),
    ]  # fmt: skip


__all__ = [
    "ERASES", "UNSURE", "Seal", "Tenant", "begin", "digest", "exit_code", "finish", "render", "run",
    "targets_of", "tell", "tenant_of", "would",
]  # fmt: skip
