"""What a request makes of a map: edits of its file, and what its entries are called by afterwards. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.entries import numbered, records
from kuvasz.admin.entries.kept_password import leads_elsewhere, with_password
from kuvasz.admin.entries.numbered import EntryKind
from kuvasz.config import names, translate
from kuvasz.config.model import DatabaseConfig, TableConfig, UrlConfig
from kuvasz.config.written.map_edit import Append, Drop, Plain, Put, Rename
from kuvasz.model import TableName, TableType

if TYPE_CHECKING:
    from kuvasz.admin.entries.numbered import NumberedDatabase, NumberedMap, NumberedTable, NumberedUrl
    from kuvasz.config.model import Section
    from kuvasz.config.problem import Path
    from kuvasz.config.written.map_edit import MapEdit
    from kuvasz.state.numbers.numbers_of_kind import EntryName

#: What a request brings, checked field by field.
Given = Mapping[str, Any]

_REFERENCES: Final = (
    "whoever writes the file may have ${…} filled in with what this machine has; what comes by the API means itself"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """An entry that keeps its number under another name."""

    kind: EntryKind
    before: EntryName
    after: EntryName


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MapChange:
    """What a request makes of a map."""

    edits: Sequence[MapEdit]
    name: EntryName = ()  #: of the entry that is shown afterwards
    renamed: Sequence[Renamed] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WrittenMap:
    """The map that runs."""

    known: NumberedMap  #: with the numbers of its entries
    plain: Mapping[str, Any]  #: as its file is written, with references and all

    def path(self, group: NumberedDatabase) -> Path:
        """Return the place of a group."""
        return "databases", [one.number for one in self.known.databases].index(group.number)

    def url_path(self, one: NumberedUrl) -> Path:
        """Return the place of a source."""
        place = [other.number for other in self.known.urls if other.database.number == one.database.number]
        return (*self.path(one.database), "urls", place.index(one.number))

    def group(self, given: Given) -> NumberedDatabase:
        """Return the group whose number a request brings.

        Raises:
            RequestRefused: There is none.
        """
        for one in self.known.databases:
            if one.number == given["db_id"]:
                return one
        raise RequestRefused(400, f"db_id: there is no db {given['db_id']}", "ask /api/db which there are")


# Groups


def add_group(_: WrittenMap, given: Given) -> MapChange:
    """Add a group without urls and tables."""
    group: dict[str, Plain] = {"database": _literal("name", given["name"]), "urls": [], "tables": {}}
    _check(DatabaseConfig, group, {"database": "name"})
    return MapChange(edits=[Append(path=("databases",), value=group)], name=(given["name"],))


def change_group(written: WrittenMap, one: NumberedDatabase, given: Given) -> MapChange:
    """Give a group another name; only one of which nothing is replicated can have one."""
    name, before = given["name"], one.group.database
    if name == before:
        return MapChange(edits=[], name=one.name)
    _check(DatabaseConfig, {"database": _literal("name", name), "urls": [], "tables": {}}, {"database": "name"})
    if one.group.urls and one.group.tables:
        message = f"the name of {before!r} is in those of its slots and publications, so it cannot change"
        raise RequestRefused(409, message, "add a group of the other name, and remove this one")
    moved = [
        *(Renamed(kind=EntryKind.URL, before=numbered.url_name(one.group, url),
                  after=(name, *numbered.url_name(one.group, url)[1:])) for url in one.group.urls),
        *(Renamed(kind=EntryKind.TABLE, before=numbered.table_name(one.group, table),
                  after=(name, table.schema, table.name)) for table in map(names.parse_table, one.group.tables)),
    ]  # fmt: skip
    return MapChange(
        edits=[Put(path=(*written.path(one), "database"), value=name)],
        name=(name,),
        renamed=[Renamed(kind=EntryKind.DATABASE, before=one.name, after=(name,)), *moved],
    )


def drop_group(written: WrittenMap, one: NumberedDatabase) -> MapChange:
    """Remove a group that is empty."""
    if one.group.urls or one.group.tables:
        has = f"{len(one.group.urls)} urls and {len(one.group.tables)} tables"
        raise RequestRefused(409, f"the group {one.group.database!r} has {has}", "remove these first")
    return MapChange(edits=[Drop(path=written.path(one))])


# Sources


def add_url(written: WrittenMap, given: Given) -> MapChange:
    """Add a source to a group."""
    group, sid = written.group(given), given.get("sid")
    edit = Append(path=(*written.path(group), "urls"), value=new_url(given))
    return MapChange(edits=[edit], name=(group.group.database, *([sid] if sid else [])))


def new_url(given: Given) -> Mapping[str, Plain]:
    """Return the entry of a source that a request brings."""
    said: dict[str, Plain] = {"url": _literal("url", given["url"])}
    for field in ("sid", "schemas", "replication_url"):
        if text := given.get(field):
            said[field] = _literal(field, text)
    _check(UrlConfig, said)
    for url in (given["url"], given.get("replication_url") or ""):
        with_password(url, "", "")
    return said


def change_url(written: WrittenMap, one: NumberedUrl, given: Given) -> MapChange:
    """Give a source another url, and one that does not run another sid."""
    group, path = one.database.group, written.url_path(one)
    _stays(written, one.database, given)
    edits: list[MapEdit] = []
    name = (group.database, *([given["sid"]] if given.get("sid") else []))
    if (given.get("sid") or None) != one.url.sid:
        if group.tables:
            message = f"the sid of {one.source} is in its rows, and in the name of its slot, so it cannot change"
            raise RequestRefused(409, message, "add it with the other sid, and remove this one")
        sid = _literal("sid", given.get("sid") or "")
        edits.append(Put(path=(*path, "sid"), value=sid) if sid else Drop(path=(*path, "sid")))
    shown = one.url.url.redacted()
    if given["url"] != shown:
        _check(UrlConfig, {"url": _literal("url", given["url"])})
        if one.url.replication_url is not None and leads_elsewhere(given["url"], shown):
            message = f"{one.source} has a replication_url, whose password would be sent elsewhere"
            raise RequestRefused(409, message, "remove the source, and add it anew with both urls")
        raw = written.plain["databases"][path[1]]["urls"][path[3]]["url"]
        edits.append(Put(path=(*path, "url"), value=with_password(given["url"], shown, raw)))
    before = numbered.url_name(group, one.url)
    return MapChange(edits=edits, name=name, renamed=[Renamed(kind=EntryKind.URL, before=before, after=name)])


def drop_url(written: WrittenMap, one: NumberedUrl) -> MapChange:
    """Remove a source."""
    return MapChange(edits=[Drop(path=written.url_path(one))])


# Tables


def add_table(written: WrittenMap, given: Given) -> MapChange:
    """Add a table to a group."""
    group, table = written.group(given), _table(given)
    if any(one.database.number == group.number and one.table == table for one in written.known.tables):
        raise RequestRefused(409, f"the group {group.group.database!r} has the table {table} already")
    said = new_table(table, given)
    edit = Put(path=(*written.path(group), "tables", names.render_table(table)), value=said or None)
    return MapChange(edits=[edit], name=numbered.table_name(group.group, table))


def new_table(table: TableName, given: Given) -> dict[str, Plain]:
    """Return what a map says of a table that a request brings."""
    said: dict[str, Plain] = {}
    if given["type"] != TableType.CLONE:
        said["type"] = given["type"]
    if given["target"] != _default_target(table):
        said["target"] = _literal("target", given["target"])
    if regex := given.get("partitions_regex"):
        said["partitions_regex"] = _literal("partitions_regex", regex)
    _check(TableConfig, said)
    return said


def change_table(written: WrittenMap, one: NumberedTable, given: Given) -> MapChange:
    """Change what the map says of a table, of which all else stays."""
    group, table = one.database.group, _table(given)
    _stays(written, one.database, given)
    path: Path = (*written.path(one.database), "tables", one.key)
    wanted = _options(written, one, given)
    _check(TableConfig, {option: value for option, value in wanted.items() if value is not None})
    said = written.plain["databases"][path[1]]["tables"][one.key]
    edits: list[MapEdit] = []
    if not said and wanted:
        edits.append(Put(path=path, value={option: value for option, value in wanted.items() if value is not None}))
    else:
        for option, value in wanted.items():
            at = (*path, option)
            edits += [Put(path=at, value=value)] if value is not None else [Drop(path=at)] if option in said else []
    if table != one.table:
        edits.append(Rename(path=path, key=names.render_table(table)))
    before, after = (numbered.table_name(group, each) for each in (one.table, table))
    return MapChange(edits=edits, name=after, renamed=[Renamed(kind=EntryKind.TABLE, before=before, after=after)])


def drop_table(written: WrittenMap, one: NumberedTable) -> MapChange:
    """Remove a table."""
    return MapChange(edits=[Drop(path=(*written.path(one.database), "tables", one.key))])


def _options(written: WrittenMap, one: NumberedTable, given: Given) -> dict[str, str | None]:
    """Return the options of a table that change; None: it has to say nothing of it."""
    found: dict[str, str | None] = {}
    if given["type"] != one.config.type:
        found["type"] = given["type"]
    is_default = given["target"] == _default_target(_table(given))
    if given["target"] != records.target(one, written.known.config.lake):
        found["target"] = None if is_default else _literal("target", given["target"])
    elif one.config.target is None and not is_default:  # another name of the table, and the target of the one before
        found["target"] = given["target"]
    regex = given.get("partitions_regex") or None
    if regex != one.config.partitions_regex:
        found["partitions_regex"] = None if regex is None else _literal("partitions_regex", regex)
    return found


def _table(given: Given) -> TableName:
    """Return the table that a request names.

    Raises:
        RequestRefused: PostgreSQL has no such names.
    """
    schema = given.get("schema") or names.DEFAULT_SCHEMA
    for field, name in (("schema", schema), ("name", given["name"])):
        if len(_literal(field, name).encode(errors="replace")) > names.MAX_NAME_BYTES or "\0" in name:
            raise RequestRefused(400, f"{field} has to be a name of at most {names.MAX_NAME_BYTES} bytes")
    return TableName(schema=schema, name=given["name"])


def _default_target(table: TableName) -> str:
    return table.name.replace(".", "_")


def _stays(written: WrittenMap, group: NumberedDatabase, given: Given) -> None:
    if written.group(given).number != group.number:
        message = f"it belongs to db {group.number}, and cannot go to db {given['db_id']}"
        raise RequestRefused(409, message, "add it there, and remove it here")


def _literal(field: str, text: str) -> str:
    """Return a text that means itself in a map.

    Raises:
        RequestRefused: It refers to something.
    """
    if re.search(r"\$\{", text):
        raise RequestRefused(400, f"{field} must not refer to anything by ${{…}}", _REFERENCES)
    return text


def _check(section: type[Section], said: Mapping[str, object], fields: Mapping[str, str] | None = None) -> None:
    """Refuse what a section of the map cannot be, field by field.

    Args:
        section: What it is.
        said: What it says.
        fields: Option -> the request's field, where that is called otherwise.
    """
    try:
        section.model_validate(said)
    except ValidationError as error:
        found = translate.problems(error)[0]
        option = str(found.path[0])
        raise RequestRefused(400, f"{(fields or {}).get(option, option)} {found.message}") from None


__all__ = [
    "MapChange", "Renamed", "WrittenMap", "add_group", "add_table", "add_url", "change_group", "change_table",
    "change_url", "drop_group", "drop_table", "drop_url", "new_table", "new_url",
]  # fmt: skip
