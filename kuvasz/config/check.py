"""What no option can see of itself: faults between options, tables, sources and targets."""

from __future__ import annotations

import collections
import dataclasses
import re
import urllib.parse
from typing import TYPE_CHECKING, TypeAlias

from kuvasz.config import kinds, names, sources, units
from kuvasz.config.model import (
    OFF,
    CatalogType,
    ClusterRole,
    Consistency,
    Deletes,
    Initial,
    OnBadValue,
    PartitionRemoved,
)
from kuvasz.config.problem import Path, Problem, listed
from kuvasz.model import TableType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kuvasz.config.model import (
        ClusterConfig,
        Config,
        DatabaseConfig,
        LakeConfig,
        PipelineConfig,
        ServerConfig,
        SparkConfig,
        TableConfig,
        UrlConfig,
    )

#: Columns that kuvasz adds to a target of this type.
RESERVED = {
    TableType.CLONE: frozenset[str](),
    TableType.APPEND: frozenset[str](),
    TableType.HISTORY: frozenset({"kvsz_start", "kvsz_end", "kvsz_deleted"}),
    TableType.CHANGELOG: frozenset({"_op", "_lsn", "_ordinal", "_xid", "_commit_ts", "_old_key"}),
}

#: What the uri of a catalog begins with; glue has none.
_URI_SCHEMES = {
    CatalogType.JDBC: ("jdbc:sqlite:", "jdbc:postgresql:"),
    CatalogType.REST: ("http://", "https://"),
    CatalogType.HIVE: ("thrift://",),
}

#: Catalogs that change several tables in one commit; of rest, a start and `kuvasz check` ask the server.
_JOINT = (CatalogType.JDBC, CatalogType.REST)

#: Who brings the token that kuvasz makes for its own verbs, and who brings none.
LOCAL = "local"
NOBODY = "nobody"

#: What feeds of one target must agree on.
_SHARED = (
    "type", "key", "partition_by", "sort_by", "deletes", "location", "properties", "maintenance", "commit_interval",
    "branch",
)  # fmt: skip


#: Iceberg's table properties, by what they begin with, that are not to be set in the map -> why, or what does it.
_OWN_PROPERTIES = {
    "kuvasz.": "kuvasz keeps its own notes there",
    "format-version": "`lake.format_version` says it",
    "history.expire.": "`maintenance.snapshot_age` and `maintenance.snapshots_kept` say it",
    "write.parquet.": "kuvasz goes by write.parquet.compression-codec and -level alone",
    "write.metadata.metrics.": "kuvasz looks rows up by these",
    "write.metadata.path": "kuvasz names files below the table's location",
    "write.data.path": "kuvasz names files below the table's location",
    "write.object-storage.": "kuvasz names files below the table's location",
    "write.delete.": "readers and other writers go by what kuvasz writes",
    "write.update.": "readers and other writers go by what kuvasz writes",
    "write.merge.": "readers and other writers go by what kuvasz writes",
    "commit.": "kuvasz commits by itself",
    "gc.enabled": "files that nobody needs any more have to go",
    "encryption.": "files are written without Iceberg's encryption",
}

#: Of Parquet files, as Iceberg calls them.
_CODECS = ("zstd", "snappy", "gzip", "lz4", "uncompressed")
_LEVELLED = ("zstd", "gzip")

_Feeds: TypeAlias = "dict[tuple[str, str], list[_MappedFeed]]"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _MappedFeed:
    """A table's entry with its place, and the group it stands in."""

    path: Path
    key: str
    table: TableConfig
    group: DatabaseConfig
    number: int

    @property
    def is_found(self) -> bool:
        """Whether a pattern takes the table in."""
        return self.group.found is not None and self.key in self.group.found.tables

    @property
    def place(self) -> Path:
        """Where the target is named, if it is."""
        if self.table.route is not None:
            return (*self.path, "route")
        return self.path if self.table.target is None else (*self.path, "target")


def problems(config: Config) -> list[Problem]:
    """Return everything that is wrong between the parts of a configuration whose parts are right."""
    found = [*_lake(config.lake), *_spark(config.spark), *_pipeline(config.pipeline), *_server(config.server)]
    if not config.databases and not config.map.writable:
        found.append(Problem(path=("databases",), message="must name at least one database"))
    for number, group in enumerate(config.databases):
        path: Path = ("databases", number)
        found += [*_tables(group, path), *_urls(group, path), *_tenants(group, path)]
        found += _consistency(config.lake, group, path)
        found += [] if config.map.writable else _bare(group, path)
    found += [*_writers(config), *_objects(config), *_masks(config), *_staged(config), *_branches(config)]
    return [*found, *_targets(config)]


def _consistency(lake: LakeConfig, group: DatabaseConfig, path: Path) -> Iterator[Problem]:
    if group.consistency is Consistency.GROUP and lake.type not in _JOINT:
        message = (
            f"cannot be group in a {lake.type} catalog, which changes one table at a time: use a"
            f" {listed(_JOINT)} catalog, or leave it at table"
        )
        yield Problem(path=(*path, "consistency"), message=message)


def _server(server: ServerConfig) -> Iterator[Problem]:
    named: set[str] = set()
    values: dict[str, str] = {}
    for number, one in enumerate(server.tokens):
        path: Path = ("server", "tokens", number)
        if one.name in {LOCAL, NOBODY}:
            yield Problem(path=(*path, "name"), message=f"{one.name!r} is kuvasz's own: give it another name")
        elif one.name in named:
            yield Problem(path=(*path, "name"), message=f"there are two tokens of {one.name!r}: give each a name")
        if (other := values.setdefault(one.token.get(), one.name)) != one.name:
            message = f"is the token of {other!r}, too: nobody could tell who asks"
            yield Problem(path=(*path, "token"), message=message)
        named.add(one.name)


def _lake(lake: LakeConfig) -> Iterator[Problem]:
    schemes = _URI_SCHEMES.get(lake.type, ())
    if schemes and not lake.uri.startswith(schemes):
        message = f"a {lake.type} catalog needs a uri that begins with {listed(schemes)}"
        yield Problem(path=("lake", "uri"), message=message)
    if lake.type is CatalogType.GLUE and "://" not in lake.warehouse:
        message = "a glue catalog needs a warehouse in a store, such as s3://bucket/folder"
        yield Problem(path=("lake", "warehouse"), message=message)
    if lake.type is CatalogType.GLUE and "." in lake.namespace:
        yield Problem(path=("lake", "namespace"), message="a glue catalog has namespaces of one level only")
    if lake.type is CatalogType.GLUE and "." in (lake.about or ""):
        yield Problem(path=("lake", "about"), message="a glue catalog has namespaces of one level only")
    if lake.about is not None and lake.about.lower() == lake.namespace.lower():
        message = "must not be that of the targets: choose another one, such as _kuvasz"
        yield Problem(path=("lake", "about"), message=message)
    if not lake.warehouse.strip():
        yield Problem(path=("lake", "warehouse"), message="must not be empty")


def _spark(spark: SparkConfig) -> Iterator[Problem]:
    if spark.why_insecure and not spark.allow_insecure:
        message = (
            f"{spark.why_insecure}: whoever reaches the cluster's ports could run code there and read every row;"
            " where nobody else does, `spark.allow_insecure: true` lets it be"
        )
        yield Problem(path=("spark", "master"), message=message)


def _pipeline(pipeline: PipelineConfig) -> Iterator[Problem]:
    memory = units.render_size(pipeline.memory)
    for option in ("commit_bytes", "transaction_spill_bytes"):
        size = getattr(pipeline, option)
        if size > pipeline.memory:
            # Reading pauses when memory is full: what has to gather beyond it would never come.
            message = f"must not exceed pipeline.memory ({memory}), but is {units.render_size(size)}"
            yield Problem(path=("pipeline", option), message=message)


def _bare(group: DatabaseConfig, path: Path) -> Iterator[Problem]:
    """A group of which nothing is replicated is a mistake, unless a program is about to fill it."""
    if not group.tables:
        yield Problem(path=(*path, "tables"), message="must name at least one table")
    if not group.urls:
        yield Problem(path=(*path, "urls"), message="must name at least one url")


def _writers(config: Config) -> Iterator[Problem]:
    """What does not go together with programs that write the map, which call a group by its name."""
    if not config.map.writable:
        return
    if config.cluster.coordinator is not None:
        message = "cannot be true with cluster.coordinator: every process has a map file of its own"
        yield Problem(path=("map", "writable"), message=message)
    first: dict[str, int] = {}
    for number, group in enumerate(config.databases):
        if (other := first.setdefault(group.database, number)) != number:
            message = f"is the name of databases[{other}], too: with map.writable each group needs its own"
            yield Problem(path=("databases", number, "database"), message=message)


def _staged(config: Config) -> Iterator[Problem]:
    """What a staged log cannot do, which keeps messages as they were sent, and unreadable only with a secret."""
    for part, who in (("read", "those that read"), ("apply", "those that apply"), ("group", "groups")):
        if f"/{part}/" in f"{config.cluster.name}/":
            yield Problem(path=("cluster", "name"), message=f"must not have /{part} in it, which stands for {who}")
    yield from _log_group(config.cluster)
    if config.cluster.indexes not in {None, OFF} and config.cluster.coordinator is None:
        message = "needs cluster.coordinator: one process has them on its own disk"
        yield Problem(path=("cluster", "indexes"), message=message)
    if config.cluster.log is None:
        if config.cluster.role is not ClusterRole.ALL:
            message = f"cannot be {config.cluster.role} without cluster.log, by which changes go to the other one"
            yield Problem(path=("cluster", "role"), message=message)
        return
    if config.cluster.coordinator is None:
        yield Problem(path=("cluster", "log"), message="needs cluster.coordinator, which knows what is staged")
    for number, group in enumerate(config.databases):
        for key, table in group.tables.items():
            for option in ("mask", "exclude", "columns"):
                if getattr(table, option) and config.pipeline.seal_secret is None:
                    message = (
                        "cannot be given with cluster.log, whose objects have all columns as the source sends them:"
                        " set pipeline.seal_secret, or leave one of the two out"
                    )
                    yield Problem(path=("databases", number, "tables", key, option), message=message, is_key=True)


def _log_group(cluster: ClusterConfig) -> Iterator[Problem]:
    """What a second group of a log needs: whatever it does not do itself is done by the first one."""
    if cluster.group is None:
        return
    path = ("cluster", "group")
    if "/" in cluster.group:
        yield Problem(path=path, message="must not have / in it")
    if cluster.log is None:
        yield Problem(path=path, message="needs cluster.log, which it hears")
    elif cluster.role is not ClusterRole.APPLY:
        message = "needs cluster.role: apply, for the sources are read by processes without a group"
        yield Problem(path=path, message=message)


def _tables(group: DatabaseConfig, path: Path) -> Iterator[Problem]:
    first: dict[object, str] = {}
    for key, table in group.tables.items():
        place = (*path, "tables", key)
        try:
            name = names.parse_table(key)
        except ValueError as error:
            yield Problem(path=place, message=str(error), is_key=True)
            continue
        if name in first:
            yield Problem(path=place, message=f"is the same table as {first[name]!r}", is_key=True)
        first.setdefault(name, key)
        yield from _table(table, place)
        yield from _pattern(key, table, place)
        yield from _route(group, table, place)


#: What goes with one target alone: what each of several has is that of its own rows.
_NOT_ROUTED = ("target", "partitions_regex", "location", "column_list", "row_filter")


def _route(group: DatabaseConfig, table: TableConfig, path: Path) -> Iterator[Problem]:
    if (route := table.route) is None:
        return
    for option in _NOT_ROUTED:
        if getattr(table, option):
            message = "cannot be given together with route, which has several targets"
            yield Problem(path=(*path, option), message=message, is_key=True)
    if any(url.schemas is not None for url in group.urls):
        message = "cannot be given with schemas of a url: the tables of a schema each go into one target"
        yield Problem(path=(*path, "route"), message=message, is_key=True)
    if not route.allow:
        yield Problem(path=(*path, "route", "allow"), message="must name at least one value")
    if is_one := route.target_of("a") == route.target_of("b"):
        message = f"must have the value in it, as {{{route.by.strip('`')}}} or {{value}}: else all are one target"
        yield Problem(path=(*path, "route", "to"), message=message)
    known: set[str | None] = {route.rest}
    for number, value in enumerate(route.allow):
        target = route.target_of(names.plain_text(value))
        if target in known and not is_one:
            message = f"{value!r} would have the target {target}, which other values have: leave it out"
            yield Problem(path=(*path, "route", "allow", number), message=message)
        known.add(target)


#: What can only be one table's.
_OF_ONE = ("partitions_regex", "location", "route")


def _pattern(key: str, table: TableConfig, path: Path) -> Iterator[Problem]:
    if not names.is_pattern(key):
        if table.excepted:
            message = "is for a pattern, such as public.*: this is the name of one table"
            yield Problem(path=(*path, "except"), message=message, is_key=True)
        return
    for option in _OF_ONE:
        if getattr(table, option) is not None:
            message = "cannot be given with a pattern, which takes in many tables"
            yield Problem(path=(*path, option), message=message, is_key=True)
    if table.target is not None and "{table}" not in table.target:
        message = "must have {table} in it, because the pattern takes in many tables: {schema}_{table}"
        yield Problem(path=(*path, "target"), message=message)
    for number, other in enumerate(table.excepted):
        try:
            names.parse_table(other)
        except ValueError as error:
            yield Problem(path=(*path, "except", number), message=str(error))


def _row_filter(table: TableConfig, path: Path) -> Iterator[Problem]:
    if not table.row_filter:
        return
    for message, is_wrong in (
        ("needs filter", table.filter is None),
        (f"is for a clone: a {table.type} tells an UPDATE from DELETE and INSERT", table.type is not TableType.CLONE),
        ("cannot be given together with partitions_regex", table.partitions_regex is not None),
        ("goes with `initial: copy`", table.initial is not Initial.COPY),
    ):
        if is_wrong:
            yield Problem(path=(*path, "row_filter"), message=message, is_key=True)


def _table(table: TableConfig, path: Path) -> Iterator[Problem]:
    for option, other in (("columns", "exclude"), ("set", "columns"), ("set", "exclude")):
        if getattr(table, option) is not None and getattr(table, other) is not None:
            yield Problem(path=(*path, other), message=f"cannot be given together with {option}", is_key=True)
    if table.column_list and table.columns is None and not table.exclude:
        yield Problem(path=(*path, "column_list"), message="needs columns or exclude", is_key=True)
    yield from _row_filter(table, path)
    yield from _lists(table, path)
    yield from _properties(table, path)
    yield from _partitions_of_history(table, path)
    yield from _key(table, path)
    yield from _removed(table, path)
    yield from _soft(table, path)
    yield from _keeping(table, path)
    if (table.initial is Initial.FROM_LSN) is not (table.from_lsn is not None):
        message = "goes with `initial: from_lsn`, which needs it"
        yield Problem(path=(*path, "from_lsn"), message=message)
    if table.initial is not Initial.COPY and table.partitions_regex is not None:
        message = "must be copy with partitions_regex: what a table has when it appears is new"
        yield Problem(path=(*path, "initial"), message=message)
    for column in table.decimals.keys() & table.types.keys():
        yield Problem(path=(*path, "decimals", column), message="is in types, too", is_key=True)
    reserved = RESERVED[table.type] | {"sid"} | ({"_deleted_at"} if table.deletes is Deletes.SOFT else set())
    for column in table.set or ():
        if column.lower() in reserved:
            message = f"is a column that kuvasz itself adds to a {table.type} table: choose another name"
            yield Problem(path=(*path, "set", column), message=message, is_key=True)
        if not column.strip():
            yield Problem(path=(*path, "set", column), message="must be a column's name", is_key=True)
    if table.set is not None and not table.set:
        yield Problem(path=(*path, "set"), message="must name at least one column")


def _partitions_of_history(table: TableConfig, path: Path) -> Iterator[Problem]:
    if table.type is not TableType.HISTORY:
        return
    for number, entry in enumerate(table.partition_by):
        if kinds.partition_term(entry)[2] in {"kvsz_end", "kvsz_deleted"}:
            message = "changes when a version ends, which must stay in its partition: take another column"
            yield Problem(path=(*path, "partition_by", number), message=message)


def _properties(table: TableConfig, path: Path) -> Iterator[Problem]:
    codec, level = f"{names.COMPRESSION}codec", f"{names.COMPRESSION}level"
    for name, value in table.properties.items():
        place = (*path, "properties", name)
        why = next((why for begin, why in _OWN_PROPERTIES.items() if name.startswith(begin)), None)
        if name == codec and value not in _CODECS:
            yield Problem(path=place, message=f"must be one of {', '.join(_CODECS)}, not {value!r}")
        elif name == level and not (value.isdigit() and 1 <= int(value) <= 9):
            yield Problem(path=place, message=f"must be a whole number from 1 to 9, not {value!r}")
        elif name == level and table.properties.get(codec, "zstd") not in _LEVELLED:
            yield Problem(path=place, message=f"{table.properties[codec]} has no level: {', '.join(_LEVELLED)} do")
        elif name not in {codec, level} and why is not None:
            yield Problem(path=place, message=f"cannot be set: {why}", is_key=True)
    if table.location is not None and "://" not in table.location and not table.location.startswith("/"):
        message = f"must be a url such as s3://lake/items, or an absolute path, not {table.location!r}"
        yield Problem(path=(*path, "location"), message=message)


def _lists(table: TableConfig, path: Path) -> Iterator[Problem]:
    for option in ("columns", "exclude", "key", "partition_by", "sort_by"):
        entries = getattr(table, option)
        if entries is not None and not entries and option in table.model_fields_set and option in {"columns", "key"}:
            yield Problem(path=(*path, option), message="must name at least one column")
        for number, entry in enumerate(entries or ()):
            if entry in entries[:number]:
                yield Problem(path=(*path, option, number), message=f"names {entry!r} twice")
    # Spark resolves columns without regard to case: two that differ in nothing else are one.
    folded: dict[str, str] = {}
    for column in table.set or ():
        if column.lower() in folded:
            message = f"differs from {folded[column.lower()]!r} in case only, which Spark does not see"
            yield Problem(path=(*path, "set", column), message=message, is_key=True)
        folded.setdefault(column.lower(), column)


def _key(table: TableConfig, path: Path) -> Iterator[Problem]:
    if table.key is None:
        return
    if table.type is TableType.CHANGELOG:
        message = "makes no sense for a changelog: every change is a row of its own there"
        yield Problem(path=(*path, "key"), message=message, is_key=True)
    for number, column in enumerate(table.key):
        if table.columns is not None and column not in table.columns:
            yield Problem(path=(*path, "key", number), message=f"{column!r} is not among the columns")
        if column in (table.exclude or ()):
            yield Problem(path=(*path, "key", number), message=f"{column!r} is excluded")
        if table.set is not None and column not in table.set:
            yield Problem(path=(*path, "key", number), message=f"{column!r} is not among the columns of set")


_SID = "sid"


def _removed(table: TableConfig, path: Path) -> Iterator[Problem]:
    if table.partition_removed is not PartitionRemoved.DELETE:
        return
    if table.type not in {TableType.CLONE, TableType.HISTORY}:
        message = f"must be keep for a table of type {table.type}, which deletes no rows"
        yield Problem(path=(*path, "partition_removed"), message=message)
    elif table.partitions_regex is not None:
        message = "must be keep with partitions_regex: the rows of a table that is dropped stay"
        yield Problem(path=(*path, "partition_removed"), message=message)


def _soft(table: TableConfig, path: Path) -> Iterator[Problem]:
    """Deleted rows stay in a clone alone, and where a row that is taken away is one that was deleted."""
    if table.deletes is not Deletes.SOFT:
        return
    if table.type is not TableType.CLONE:
        yield Problem(path=(*path, "deletes"), message=f"must be hard for a table of type {table.type}")
    if table.on_bad_value is not OnBadValue.STOP:
        message = f"cannot be soft with `on_bad_value: {table.on_bad_value}`: a rejected row would show as deleted"
        yield Problem(path=(*path, "deletes"), message=message)


def _keeping(table: TableConfig, path: Path) -> Iterator[Problem]:
    """The earlier version of a rejected row is a row of its own in a clone alone."""
    if table.on_bad_value is OnBadValue.KEEP and table.type is not TableType.CLONE:
        message = f"cannot be keep for a table of type {table.type}, which has all versions: reject leaves them"
        yield Problem(path=(*path, "on_bad_value"), message=message)


#: Shorter ones can be guessed, and then so can every value that is masked, or read what is sealed.
_SECRET_CHARACTERS = 16


def _branches(config: Config) -> Iterator[Problem]:
    """A branch that is written goes on from its newest snapshot: nothing may set it to another one."""
    said: list[tuple[Path, str | None]] = [(("lake", "branch"), config.lake.branch)]
    for number, group in enumerate(config.databases):
        said += [(("databases", number, "tables", key, "branch"), one.branch) for key, one in group.tables.items()]
    for path, branch in said if config.maintenance.clean_branch else ():
        if branch == names.CLEAN_BRANCH:
            message = "`maintenance.clean_branch` sets this branch to states of its own: choose another one"
            yield Problem(path=path, message=message)


def _masks(config: Config) -> Iterator[Problem]:
    secret = config.pipeline.mask_secret
    for option in ("mask_secret", "seal_secret", "earlier_seal_secret"):
        found = getattr(config.pipeline, option)
        if found is not None and len(found) < _SECRET_CHARACTERS:
            message = f"must have at least {_SECRET_CHARACTERS} characters"
            yield Problem(path=("pipeline", option), message=message)
    for number, group in enumerate(config.databases):
        for key, table in group.tables.items():
            for column, method in table.mask.items():
                path = ("databases", number, "tables", key, "mask", column)
                if method != "redact" and secret is None:
                    yield Problem(path=path, message="hmac needs a key: set pipeline.mask_secret")
                if table.set is not None and column not in table.set:
                    yield Problem(path=path, message="is not among the columns of set", is_key=True)
                if method == "redact" and column in (table.key or ()):
                    message = "is part of the key, of which redact would make one row of all: hmac keeps them apart"
                    yield Problem(path=path, message=message)
                if column == _SID and any((url.sid or url.schemas) is not None for url in group.urls):
                    yield Problem(path=path, message="is kuvasz's own column, which tells sources apart", is_key=True)


def _urls(group: DatabaseConfig, path: Path) -> Iterator[Problem]:
    sids: dict[str, int] = {}
    urls: dict[str, int] = {}
    for number, url in enumerate(group.urls):
        place = (*path, "urls", number)
        if url.sid is None and len(group.urls) > 1:
            yield Problem(path=place, message="a sid is needed, because the group has several urls", is_key=True)
        if url.sid is not None and url.sid in sids:
            message = f"the sid {url.sid!r} is that of urls[{sids[url.sid]}] already"
            yield Problem(path=(*place, "sid"), message=message)
        if url.url.get() in urls:
            message = f"is the same as that of urls[{urls[url.url.get()]}]: its rows would come twice"
            yield Problem(path=(*place, "url"), message=message)
        if url.replication_url is not None and (message := _of_role(url.replication_url.get())):
            yield Problem(path=(*place, "replication_url"), message=message)
        sids.setdefault(url.sid or "", number)
        urls.setdefault(url.url.get(), number)


def _of_role(url: str) -> str:
    """Return what a url has too much or too little that only says who replicates; never a part of it."""
    front, _, query = url.partition("://")[2].partition("?")
    account, _, place = front.rpartition("@")
    parameters = dict(urllib.parse.parse_qsl(query))
    if not account.partition(":")[0] and not parameters.get("user"):
        return "names no user: write postgresql://user:password@"
    if place.strip("/") or parameters.keys() & {"host", "hostaddr", "port", "dbname", "service"}:
        return "names a server or a database, and those are in url: write postgresql://user:password@"
    return ""


def _tenants(group: DatabaseConfig, path: Path) -> Iterator[Problem]:
    """What does not go together with a schema per tenant."""
    schemas = next((url.schemas for url in group.urls if url.schemas is not None), None)
    if schemas is None:
        return
    for key, table in group.tables.items():
        place = (*path, "tables", key)
        if names.is_pattern(key):
            message = "cannot be a pattern with schemas of a url: name the tables that each schema has"
            yield Problem(path=place, message=message, is_key=True)
        elif _has_schema(key):
            message = (
                f"names a schema, and a url takes those like {schemas}: write the table's name alone, or give tables"
                " of one schema a group of their own"
            )
            yield Problem(path=place, message=message, is_key=True)
        if table.partitions_regex is not None:
            message = "cannot be given together with schemas of a url: a sid has one table of a target"
            yield Problem(path=(*place, "partitions_regex"), message=message, is_key=True)
        if table.initial is not Initial.COPY:
            message = "must be copy with schemas of a url: what a tenant has when it appears is new"
            yield Problem(path=(*place, "initial"), message=message)
        if table.partition_removed is PartitionRemoved.DELETE:
            message = "must be keep with schemas of a url: the rows of a schema that is dropped stay"
            yield Problem(path=(*place, "partition_removed"), message=message)


def _has_schema(key: str) -> bool:
    try:
        return len(names.split_name(key)) > 1
    except ValueError:  # `_tables` has told
        return False


def _objects(config: Config) -> Iterator[Problem]:
    """Slots and publications are found again by their names, so two sources must not share one."""
    owners: dict[str, tuple[int, int]] = {}
    for number, group in enumerate(config.databases):
        sids = [url.sid for url in group.urls]
        for entry, url in enumerate(group.urls):
            name = names.object_name(group.database, url.sid)
            owner = owners.setdefault(name, (number, entry))
            is_told = owner[0] == number and sids.index(url.sid) != entry  # by _urls
            if owner != (number, entry) and not is_told:
                other = f"databases[{owner[0]}].urls[{owner[1]}]"
                message = f"its slot would be called {name}, as that of {other}: change the sid"
                yield Problem(path=("databases", number, "urls", entry, *_sid_key(url)), message=message)


def _sid_key(url: UrlConfig) -> tuple[str, ...]:
    return () if url.sid is None else ("sid",)


def _targets(config: Config) -> Iterator[Problem]:
    feeds: _Feeds = {}
    for number, group in enumerate(config.databases):
        for key, table in sources.entries_of(group):
            path: Path = ("databases", number, "tables", key)
            feed = _MappedFeed(path=path, key=key, table=table, group=group, number=number)
            try:
                name = sources.target_name(config.lake, key, table)
            except ValueError:
                continue  # a key that is no name has no target; `_tables` has told
            feeds.setdefault(name, []).append(feed)
    yield from _names(feeds)
    yield from _paces(feeds)
    yield from _webhooks(config)
    yield from _cases(feeds)
    yield from _strangers(feeds, config.lake.about)
    yield from _rejecting(feeds, config.lake.about)
    yield from _locations(feeds, config.lake.warehouse_location)
    for (namespace, target), group_feeds in feeds.items():
        identifier = f"{namespace}.{target}"
        yield from _one_table_each(identifier, group_feeds)
        yield from _one_shape(identifier, group_feeds)
        yield from _one_sid_each(identifier, group_feeds)
        yield from _one_group(identifier, group_feeds)


def _one_group(identifier: str, feeds: list[_MappedFeed]) -> Iterator[Problem]:
    """A target that others feed, too, would change without the tables of its group."""
    ours = next((feed for feed in feeds if feed.group.consistency is Consistency.GROUP), None)
    other = next((feed for feed in feeds if ours is not None and feed.number != ours.number), None)
    if ours is not None and other is not None:
        message = (
            f"cannot be group, because the target {identifier} is fed by databases[{other.number}] too: give the"
            " tables of one of them other targets, or put their urls into one group"
        )
        yield Problem(path=_blamed(feeds, ("databases", ours.number, "consistency")), message=message)


def _blamed(feeds: list[_MappedFeed], path: Path) -> Path:
    """Return what a fault between feeds of a target is told of: a table that a pattern takes in can be left out."""
    return next((feed.path for feed in reversed(feeds) if feed.is_found), path)


def _paces(feeds: _Feeds) -> Iterator[Problem]:
    """A target with a commit interval of its own has another worker than others."""
    paces: set[float] = set()
    for feed in (found[0] for found in feeds.values()):
        pace, path = feed.table.commit_interval, (*feed.path, "commit_interval")
        if pace is None:
            continue
        if feed.group.consistency is Consistency.GROUP:
            message = "with `consistency: group` all tables of the group change in one commit: leave it out"
            yield Problem(path=path, message=message)
        paces.add(pace)
        if len(paces) == sources.MOST_PACES + 1:
            message = f"tables may have {sources.MOST_PACES} different ones at most: give several the same"
            yield Problem(path=path, message=message)


def _webhooks(config: Config) -> Iterator[Problem]:
    """How far a webhook has been told is kept under its name."""
    labels = [one.label for one in config.notify]
    for number, label in enumerate(labels):
        if label in labels[:number]:
            message = f"there are two webhooks called {label}: give each a `name`"
            yield Problem(path=("notify", number), message=message)


def _names(feeds: _Feeds) -> Iterator[Problem]:
    """A target's default name is checked here, and that by a pattern: where it is written, its kind did so."""
    for (_, target), (feed, *_others) in feeds.items():
        if re.search(r"[/\\`\x00-\x1f]", target) or not target.strip():
            message = "cannot be a table's name in the lake: give it another one with 'target'"
            yield Problem(path=feed.path, message=message, is_key=True)


def _rejecting(feeds: _Feeds, about: str | None) -> Iterator[Problem]:
    """What is rejected is kept among the tables about the lake."""
    for feed in (feed for found in feeds.values() for feed in found):
        if about is None and feed.table.on_bad_value is not OnBadValue.STOP:
            message = "rejected rows are kept in a table about the lake: name its namespace with `lake.about`"
            yield Problem(path=(*feed.path, "on_bad_value"), message=message)


def _strangers(feeds: _Feeds, about: str | None) -> Iterator[Problem]:
    """No target stands among the tables that kuvasz keeps about the lake."""
    for (namespace, target), (feed, *_others) in feeds.items():
        if about is not None and namespace.lower() == about.lower() and feed.table.target is not None:
            message = f"the target {namespace}.{target} is in the namespace of `lake.about`: choose another one"
            yield Problem(path=feed.place, message=message)


def _cases(feeds: _Feeds) -> Iterator[Problem]:
    folded: dict[tuple[str, str], tuple[str, str]] = {}
    for name, (feed, *_others) in feeds.items():
        other = folded.setdefault((name[0].lower(), name[1].lower()), name)
        if other != name:
            message = (
                f"the target {'.'.join(name)} differs from {'.'.join(other)} in case only, which many catalogs do"
                " not see: give one of them another name with 'target'"
            )
            yield Problem(path=feed.place, message=message, is_key=feed.table.target is None)


def _one_table_each(identifier: str, feeds: list[_MappedFeed]) -> Iterator[Problem]:
    first: dict[int, _MappedFeed] = {}
    for feed in feeds:
        other = first.setdefault(feed.number, feed)
        if other.path != feed.path:  # `_route` tells what is of one entry
            message = (
                f"the target {identifier} is that of {other.key!r} already: give one of them another name with"
                " 'target', or join them with 'partitions_regex'"
            )
            yield Problem(path=feed.place, message=message, is_key=feed.table.target is None)


def _one_shape(identifier: str, feeds: list[_MappedFeed]) -> Iterator[Problem]:
    for feed in feeds[1:]:
        for option in _SHARED:
            if getattr(feed.table, option) != getattr(feeds[0].table, option):
                path = (*feed.path, option) if option in feed.table.model_fields_set else feed.path
                where = f"databases[{feeds[0].number}]"
                yield Problem(path=path, message=f"{option} of the target {identifier} is not the same in {where}")
        if _together(feed) != _together(feeds[0]):
            message = (
                f"the target {identifier} is none of this route's in databases[{feeds[0].number}]: both need a route"
                " with the same `to`"
            )
            yield Problem(path=feed.place, message=message, is_key=True)
        if (feed.table.partitions_regex is None) != (feeds[0].table.partitions_regex is None):
            message = f"databases[{feeds[0].number}] feeds the target {identifier} too: both need partitions_regex"
            yield Problem(path=feed.path, message=message, is_key=True)


def _together(feed: _MappedFeed) -> str | None:
    """Return which targets have one worker, which each target has to have for all that feed it."""
    return None if feed.table.route is None else feed.table.route.to


def _locations(feeds: _Feeds, warehouse: str) -> Iterator[Problem]:
    """No table's files lie among those of another: whatever is nobody's there is removed one day."""
    known: dict[str, str] = {names.one_place(warehouse): "the warehouse"}
    for (namespace, target), (feed, *_others) in feeds.items():
        if feed.table.table_location is None:
            continue
        mine = names.one_place(feed.table.table_location)
        for other, whose in known.items():
            if f"{mine}/".startswith(f"{other}/") or f"{other}/".startswith(f"{mine}/"):
                message = f"lies in {whose}, or {whose} in it: each target needs a place of its own"
                yield Problem(path=(*feed.path, "location"), message=message)
        known[mine] = f"the location of {namespace}.{target}"


def _one_sid_each(identifier: str, feeds: list[_MappedFeed]) -> Iterator[Problem]:
    """Rows of several sources are told apart by their sid alone."""
    if len({feed.number for feed in feeds}) < 2:  # one group: `_urls` has looked at it
        return
    seen: collections.defaultdict[str, set[int]] = collections.defaultdict(set)
    for feed in feeds:
        for entry, url in enumerate(feed.group.urls):
            path: Path = ("databases", feed.number, "urls", entry)
            if url.schemas is not None:  # what they capture is known when they are looked at
                continue
            if url.sid is None:
                message = f"a sid is needed, because the target {identifier} is fed by other databases too"
                yield Problem(path=_blamed(feeds, path), message=message, is_key=True)
                continue
            others = seen[url.sid] - {feed.number}
            if others:
                message = (
                    f"the sid {url.sid!r} feeds the target {identifier} from databases[{min(others)}] already:"
                    " its rows could not be told apart"
                )
                yield Problem(path=_blamed(feeds, (*path, "sid")), message=message)
            seen[url.sid].add(feed.number)
