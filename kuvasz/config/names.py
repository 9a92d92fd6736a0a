"""Names: source tables as the map writes them, and the one name that a source's slot and publication bear."""

from __future__ import annotations

import hashlib
import posixpath
import re

from kuvasz.model import TableName

DEFAULT_SCHEMA = "public"

#: What every object that kuvasz makes at a source begins with.
PREFIX = "kuvasz_"

#: Stands for all members of a source; a member's own is an OID, with the tenant behind it where it is a tenant's.
MEMBERS = "*"

#: Between the OID of a tenant's table and the tenant.
_OF_TENANT = "@"

#: What Iceberg's table properties begin with that say how Parquet files are compressed.
COMPRESSION = "write.parquet.compression-"

#: Schemes of one store: FileIOs take them for each other.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs"}

#: A path of a file without the slashes of a scheme.
_PLAIN_PATH = re.compile(r"(?:file:)?(/(?!/).*)", re.DOTALL)

#: What the tags of cuts begin with.
CUT_PREFIX = "cut_"

#: The branch of states without delete files (`maintenance.clean_branch`).
CLEAN_BRANCH = "clean"

#: PostgreSQL's NAMEDATALEN - 1 (manual, section 4.1.1 "Identifiers and Key Words").
MAX_NAME_BYTES = 63

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".][^.]*)')


def parse_table(text: str) -> TableName:
    """Return the table that a key of ``tables`` names.

    Mixed case and spaces are taken as written. A dot separates schema and table; a part with a dot in it stands in
    double quotes, where a doubled quote means one. The schema is ``public`` if none is named.

    Raises:
        ValueError: The text is no table name; the message completes a sentence that begins with it.
    """
    parts = split_name(text)
    if len(parts) > 2:
        msg = f"has {len(parts)} parts, not a schema and a name: put a name that has a dot in double quotes"
        raise ValueError(msg)
    return TableName(schema=parts[0] if len(parts) > 1 else DEFAULT_SCHEMA, name=parts[-1])


def render_table(table: TableName) -> str:
    """Return the shortest text that `parse_table` reads back as `table`."""
    name = quote_part(table.name)
    return name if table.schema == DEFAULT_SCHEMA else f"{quote_part(table.schema)}.{name}"


def is_pattern(text: str) -> bool:
    """Say whether a key of ``tables`` means all tables like it; in double quotes ``*`` is a character as others."""
    return any("*" in (match[2] or "") for match in _PART.finditer(text))


def matches(pattern: TableName, table: TableName) -> bool:
    """Say whether a pattern, which `parse_table` read, means a table: each ``*`` in it stands for any text."""
    return is_like(pattern.schema, table.schema) and is_like(pattern.name, table.name)


def means(text: str, table: TableName) -> bool:
    """Say whether a key of ``tables``, or a text of ``except``, means a table: as `matches`, but for quoted parts."""
    *schema, name = _parts(text)
    (of_schema,) = schema or [(DEFAULT_SCHEMA, True)]
    return all(
        part == there if is_quoted else is_like(part, there)
        for (part, is_quoted), there in ((of_schema, table.schema), (name, table.name))
    )


def is_word(text: str) -> bool:
    """Say whether an expression is the name of a column and nothing else, in backquotes or without."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*|`[^`]+`", text) is not None


def plain_text(value: bool | int | str) -> str:  # noqa: FBT001 (a value of YAML)
    """Return the text of a value that a map has, as PostgreSQL and Spark write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def sql_literal(value: bool | int | str) -> str:  # noqa: FBT001 (a value of YAML)
    """Return a value that a map has as a literal of SQL; a text has no quote and no backslash."""
    return f"'{value}'" if isinstance(value, str) else plain_text(value)


def is_whole_match(regex: str, name: str) -> bool:
    """Say whether a regular expression of a map takes a name in."""
    return re.fullmatch(regex, name) is not None


def is_like(pattern: str, text: str) -> bool:
    """Say whether a pattern means a text: each ``*`` in it stands for any text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


def missing(table: TableName) -> str:
    """Return what to do about a table of the map that is not there."""
    told = "create it, or take it out of the map"
    if not set("*?%") & set(table.name):
        return told
    return (
        f"{told}: a pattern has `*` alone, outside quotes; `partitions_regex` has several tables go into one target"
    )


def split_name(text: str) -> tuple[str, ...]:
    """Return the parts of a dotted name, unquoted.

    Raises:
        ValueError: A part is empty, a quote is not closed, or there is a NUL.
    """
    return tuple(part for part, _ in _parts(text))


def _parts(text: str) -> list[tuple[str, bool]]:
    """Return the parts of a dotted name, unquoted, and whether they were quoted; errors as for `split_name`."""
    parts: list[tuple[str, bool]] = []
    end = -1
    while end < len(text):
        match = _PART.match(text, end + 1)
        if match is None or "\0" in match[0]:
            msg = "is not a name: a dot separates schema and table, double quotes protect a dot"
            raise ValueError(msg)
        parts.append((match[2], False) if match[1] is None else (match[1].replace('""', '"'), True))
        end = match.end()
        if end < len(text) and text[end] != ".":
            msg = f"is not a name: {text[end:]!r} follows the closing double quote"
            raise ValueError(msg)
    return parts


def quote_part(part: str) -> str:
    """Return one part of a dotted name, in double quotes where it needs them."""
    if set(".*") & set(part) or part.startswith('"'):
        return '"' + part.replace('"', '""') + '"'
    return part


def called(target: str, table: TableName | str) -> frozenset[str]:
    """Return what a person may call a table: its target with or without namespace, or its name at the source."""
    name = str(table)
    return frozenset({target, target.rpartition(".")[2], name, name.removeprefix(f"{DEFAULT_SCHEMA}.")})


def object_name(database: str, sid: str | None = None) -> str:
    """Return the name of both the slot and the publication of a source.

    ``kuvasz_<database>_<sid>``, or ``kuvasz_<database>`` without a sid: lower-cased, anything but a-z, 0-9 and _
    replaced by _ (all that a slot's name may hold: manual, section 26.2.6.1 "Querying and Manipulating Replication
    Slots"), and shortened with a hash of the whole above 63 bytes.
    """
    plain = f"{PREFIX}{database}_{sid}" if sid else f"{PREFIX}{database}"
    name = re.sub(r"[^a-z0-9_]", "_", plain.lower())
    if len(name) <= MAX_NAME_BYTES:
        return name
    digest = hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()
    return f"{name[: MAX_NAME_BYTES - 1 - len(digest)]}_{digest}"


def one_place(location: str) -> str:
    """Return one text for one place: a path without dots in it, a store by one scheme, and no slash at its end.

    Catalogs have paths of files by three names: `file:///lake`, `file:/lake` as Hadoop does, and `/lake`.
    """
    if plain := _PLAIN_PATH.fullmatch(location):
        location = f"file://{plain[1]}"
    scheme, separator, path = location.partition("://")
    path = posixpath.normpath(path) if scheme == "file" else path.rstrip("/")
    return f"{_SCHEMES.get(scheme, scheme)}{separator}{path}"


def member_name(source: str, member: str) -> str:
    """Return the name under which the lake keeps one of several tables of a source that are one target.

    A source's own name has no slash.
    """
    return f"{source}/{member}" if member else source


def source_of(name: str) -> str:
    """Return the source of what `member_name` made; a source's own name is its own."""
    return name.partition("/")[0]


def member_of(name: str) -> str:
    """Return which of several tables `member_name` was made for; empty for a source's own name."""
    return name.partition("/")[2]


def tenant_member(oid: int, tenant: str) -> str:
    """Return which of the tables of all tenants one is: its rows are of both, the table and the tenant."""
    return f"{oid}{_OF_TENANT}{tenant}"


def oid_of(member: str) -> int:
    """Return the OID of a member; 0 without one."""
    return int(member.partition(_OF_TENANT)[0] or 0)


def tenant_of(member: str) -> str | None:
    """Return the tenant of a member: the sid of its rows; None if it is no tenant's."""
    _, is_tenant, tenant = member.partition(_OF_TENANT)
    return tenant if is_tenant else None


def feeder_of(name: str) -> str:
    """Return what feeds a target under a name of `member_name`: a source, or, as ``source/*``, a collapse of its."""
    return member_name(source_of(name), MEMBERS if member_of(name) else "")


def source_name(database: str, sid: str | None = None) -> str:
    """Return what kuvasz calls a source: its object name without the prefix."""
    return object_name(database, sid).removeprefix(PREFIX)
