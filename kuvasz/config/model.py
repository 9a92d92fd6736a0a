"""The typed model of the configuration: one class per section, one documented field per option.

Frozen, and closed: an unknown key is an error. Durations are float seconds, sizes are bytes. The attributes' texts
are the options' help: `kuvasz config --schema` and docs/configuration.md are made from them.
"""

from __future__ import annotations

import datetime
import enum
import os
import urllib.parse
import warnings
import zoneinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr
from typing_extensions import override

from kuvasz.config import kinds, names, secrets
from kuvasz.model import TableType
from kuvasz.seal.sealing_secrets import SealingSecrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pydantic.fields import FieldInfo

    from kuvasz.config.patterns.found_tables import FoundTables

# Of pydantic's old method of that name, which nobody calls.
warnings.filterwarnings("ignore", 'Field name "copy" in "Config" shadows', UserWarning)

_MB = 1024**2
_SQLITE = "jdbc:sqlite:"

#: Of an option that has a default, and is to have nothing.
OFF = "off"


class CatalogType(enum.StrEnum):
    """Kinds of Iceberg catalogs."""

    JDBC = "jdbc"
    REST = "rest"
    HIVE = "hive"
    GLUE = "glue"


#: Between a cluster's name and that of a group of its log, in what tells those apart; it is in no name of a cluster.
GROUPS = "/group/"


class ClusterRole(enum.StrEnum):
    """What a process of a cluster does."""

    ALL = "all"
    READ = "read"
    APPLY = "apply"


class OnSchemaChange(enum.StrEnum):
    """What happens when a source table's columns change."""

    AGREE = "agree"
    EVOLVE = "evolve"
    HOLD = "hold"
    STOP = "stop"


class OutOfRange(enum.StrEnum):
    """What happens to a date or timestamp that Iceberg cannot hold."""

    ERROR = "error"
    NULL = "null"
    CLAMP = "clamp"


class OnBadValue(enum.StrEnum):
    """What happens to a row with a value that its table in the lake cannot hold."""

    STOP = "stop"
    REJECT = "reject"
    KEEP = "keep"


class Deletes(enum.StrEnum):
    """What becomes of a clone's row that its source deletes."""

    HARD = "hard"
    SOFT = "soft"


class Initial(enum.StrEnum):
    """What becomes of the rows that a table has when it is taken in."""

    COPY = "copy"
    SKIP = "skip"
    FROM_LSN = "from_lsn"


class PartitionRemoved(enum.StrEnum):
    """What becomes of the rows of a partition that was detached or dropped."""

    DELETE = "delete"
    KEEP = "keep"


class OnSlotLost(enum.StrEnum):
    """What happens when a source no longer has the stream we need."""

    STOP = "stop"
    REPAIR = "repair"
    RESYNC = "resync"


class Origin(enum.StrEnum):
    """Which changes of a source are taken, by where they were made."""

    ANY = "any"
    NONE = "none"


class Consistency(enum.StrEnum):
    """What of a group's tables is seen to change at once."""

    TABLE = "table"
    GROUP = "group"


class OnLakeRewound(enum.StrEnum):
    """What happens when someone set a lake table back."""

    STOP = "stop"
    REPAIR = "repair"


class WhenParkedFull(enum.StrEnum):
    """What happens when a table's parked changes reach their bound."""

    HOLD = "hold"
    RESYNC = "resync"


class MetricsScope(enum.StrEnum):
    """What a sample of a table's metrics is of."""

    PER_TABLE = "per_table"
    PER_SOURCE = "per_source"


class LogFormat(enum.StrEnum):
    """How the log's lines look."""

    AUTO = "auto"
    PLAIN = "plain"
    JSON = "json"


class LogLevel(enum.StrEnum):
    """What is told: this, and what matters more."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class NoticeKind(enum.StrEnum):
    """What a webhook may be told of."""

    COMMIT = "commit"
    ERROR = "error"
    SCHEMA = "schema"
    CUT = "cut"
    REJECT = "reject"


class Section(BaseModel):
    """A part of the configuration. Its ``repr`` and ``str`` hide what is secret; its attributes are the values."""

    # What options mean is read from below them by `kuvasz.config.reference` alone: a fifth of this module's loading.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, serialize_by_alias=True)

    @classmethod
    def options(cls) -> dict[str, FieldInfo]:
        """Return the options by the names that a map has for them: one of them is a word of Python's own."""
        return {field.alias or name: field for name, field in cls.model_fields.items()}

    @override
    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, secrets.shown(name or "", value)


#: The header by which a REST catalog is asked to vend (Iceberg REST specification), as a property in small letters.
_DELEGATION = "header.x-iceberg-access-delegation"


#: Properties of a JDBC catalog that its connections to come may have others of.
JDBC_CREDENTIALS = ("jdbc.user", "jdbc.password")

#: Properties by which a REST catalog lets requests in, which may be others from one request to the next.
REST_CREDENTIALS = ("token", "credential")

#: Properties of the FileIO of a JDBC catalog that it may have others of while it is open.
STORE_CREDENTIALS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")


class LakeConfig(Section):
    """The Iceberg catalog and where the tables live."""

    type: CatalogType = CatalogType.JDBC
    """The catalog: jdbc (SQLite or PostgreSQL), rest, hive or glue."""

    name: kinds.Catalog = "kuvasz"
    """The catalog's name in Spark, and in a jdbc catalog's rows: its readers must use the same name."""

    uri: str = "jdbc:sqlite:lake/catalog.db"
    """`jdbc:sqlite:<file>`, `jdbc:postgresql://…`, `https://…` (rest) or `thrift://…` (hive)."""

    warehouse: str = "lake/warehouse"
    """The folder or bucket of the tables: a path, or `s3://…`, `gs://…`, `abfss://…`, `hdfs://…`."""

    namespace: kinds.Namespace = "kuvasz"
    """The namespace of the targets that name none."""

    format_version: kinds.FormatVersion = 3
    """Iceberg's format: 3 (deletion vectors) or 2 (position deletes, for readers that do not know 3)."""

    on_lake_rewound: OnLakeRewound = OnLakeRewound.STOP
    """When someone rolled a table back, replaced it, or restored an older catalog: stop the table with an error;
    repair: compare it with its sources and mend what differs."""

    branch: kinds.Branch = "main"
    """The branch that the targets' commits go to, where their entries say nothing else. With another than `main`,
    which readers see, `kuvasz publish` shows them what there is; positions and columns are of the whole table."""

    about: kinds.OffOrNamespace | None = None
    """A namespace in which kuvasz keeps tables about the lake itself: its commits, what happened, how far each source
    is (docs/about-the-lake.md), such as `_kuvasz`; `off` for none. No target may be in it."""

    about_keep: Annotated[kinds.Duration, kinds.durations("1d", "3650d")] = 30 * 86400.0
    """Rows of these tables go when they are older, whole days at a time."""

    properties: kinds.Texts = Field(default_factory=dict)
    """Handed to the Iceberg catalog and its FileIO as they are: `s3.endpoint`, `jdbc.user`, `token`, …"""

    _live: dict[str, secrets.SecretText] = PrivateAttr(default_factory=dict)
    _at_start: tuple[str, ...] = PrivateAttr(default=())

    @property
    def vends_credentials(self) -> bool:
        """Whether the catalog is asked to lend the credentials of the store, table by table."""
        asked = (value for name, value in self.properties.items() if name.lower() == _DELEGATION)
        return self.type is CatalogType.REST and any("vended-credentials" in value for value in asked)

    @property
    def live_properties(self) -> Mapping[str, str]:
        """The properties; credentials that are in files, or printed by commands, are asked for at each look."""
        return secrets.LiveTexts(self.properties, self._live) if self._live else self.properties

    def asking(self, found: Mapping[str, secrets.SecretText]) -> LakeConfig:
        """Return the same that asks again for some properties, as far as a catalog that is open may take others."""
        copied = self.model_copy()
        mine = (*(STORE_CREDENTIALS if self.type is CatalogType.JDBC else ()), *self._of_connections)
        copied._live = {name: one for name, one in found.items() if name in mine}
        copied._at_start = tuple(name for name in found if name not in mine and secrets.is_secret_name(name))
        return copied

    @property
    def asked_at_start(self) -> Sequence[str]:
        """The properties that are secrets from files or commands, and that are asked for at a start alone."""
        return self._at_start

    def with_credentials(self, other: LakeConfig) -> LakeConfig:
        """Return the same with the credentials of another, as far as a catalog that is open may take them."""
        if other.type is not self.type or self.type not in {CatalogType.JDBC, CatalogType.REST}:
            return self
        if self.type is CatalogType.REST and not (self._is_let_in and other._is_let_in):
            return self  # a catalog that was opened without credentials, or is to have none, has no session for them
        mine = set(self._of_connections)
        live = {name: one for name, one in self._live.items() if name not in mine}
        # What is asked for anew at each use is no difference.
        taken = mine | {name for name, one in live.items() if other._live.get(name) == one}
        kept = {name: value for name, value in self.properties.items() if name not in taken}
        found = kept | {name: value for name, value in other.properties.items() if name in taken}
        live |= {name: one for name, one in other._live.items() if name in mine}
        if (found, live) == (self.properties, self._live):
            return self
        copied = self.model_copy(update={"properties": found})
        copied._live = live
        return copied

    @property
    def _of_connections(self) -> tuple[str, ...]:
        if self.type is CatalogType.REST:
            return REST_CREDENTIALS
        return JDBC_CREDENTIALS if self.type is CatalogType.JDBC and self.sqlite_file is None else ()

    @property
    def _is_let_in(self) -> bool:
        return any(name in self.properties for name in REST_CREDENTIALS)

    @property
    def catalog_uri(self) -> str:
        """The uri, with an SQLite file's path made absolute."""
        file = self.sqlite_file
        return self.uri if file is None else f"{_SQLITE}{file}"

    @property
    def sqlite_path(self) -> Path | None:
        """The path of an SQLite catalog; None for any other. A loaded map's is absolute."""
        if self.type is not CatalogType.JDBC or not self.uri.startswith(_SQLITE):
            return None
        return Path(self.uri.removeprefix(_SQLITE).removeprefix("file:").partition("?")[0])

    @property
    def sqlite_file(self) -> Path | None:
        """The absolute path of an SQLite catalog; None for any other."""
        path = self.sqlite_path
        return None if path is None else path.absolute()

    @property
    def warehouse_path(self) -> Path | None:
        """The path of a warehouse in a folder; None for any other. A loaded map's is absolute.

        A rest catalog's warehouse may be a mere name, which only its server understands.
        """
        location = self.warehouse.rstrip("/") or "/"
        is_name = self.type is CatalogType.REST and "/" not in location and "warehouse" in self.model_fields_set
        return None if "://" in location or is_name else Path(location.removeprefix("file:"))

    def anchored(self, folder: Path) -> LakeConfig:
        """Return the same with absolute paths; see `Config.anchored`."""
        paths = {}
        if (file := self.sqlite_path) is not None:
            paths["uri"] = f"{_SQLITE}{_from(folder, file)}"
        if (warehouse := self.warehouse_path) is not None:
            paths["warehouse"] = _from(folder, warehouse)
        return self.model_copy(update=paths)

    @property
    def warehouse_location(self) -> str:
        """The warehouse with its scheme, which for a path is ``file://``; a mere name stays as it is."""
        path = self.warehouse_path
        return self.warehouse.rstrip("/") if path is None else f"file://{path.absolute()}"

    def default_location(self, name: str) -> str | None:
        """Return where the catalog puts the files of a table that is given no place; None: only it knows."""
        if self.type is not CatalogType.JDBC:
            return None
        return f"{self.warehouse_location}/{name.replace('.', '/')}"


#: Masters that make a secret for each application and hand it to its executors (Spark, "Security", "Authentication").
_SHARE_SECRETS = ("yarn", "k8s://")


class SparkConfig(Section):
    """The Spark session."""

    master: kinds.Text = "local[*]"
    """`local[*]` runs Spark inside kuvasz on all cores; or a cluster's url."""

    conf: kinds.Texts = Field(default_factory=dict)
    """Any Spark setting; it wins over the ones kuvasz chooses."""

    allow_insecure: bool = False
    """Whether a cluster may do without `spark.authenticate` and `spark.network.crypto.enabled`, which are on else:
    whoever reaches the ports of driver and executors then reads every row and secret, and runs code there."""

    @property
    def is_local(self) -> bool:
        """Whether Spark runs inside kuvasz."""
        return self.master == "local" or self.master.startswith("local[")

    @property
    def why_insecure(self) -> str:
        """Why others could listen to a cluster's connections, or answer on them; nothing if they could not."""
        is_secret = "spark.authenticate.secret" in self.conf or self.master.startswith(_SHARE_SECRETS)
        if self.is_local or (self._asks("spark.authenticate") and self._is_encrypted and is_secret):
            return ""
        if not self._asks("spark.authenticate"):
            return "`spark.authenticate` is off"
        if not self._is_encrypted:
            return "`spark.network.crypto.enabled` is off"
        return "a standalone cluster needs the `spark.authenticate.secret` of its master and workers in `spark.conf`"

    @property
    def _is_encrypted(self) -> bool:
        return self._asks("spark.network.crypto.enabled") or self.conf.get("spark.ssl.rpc.enabled") == "true"

    def _asks(self, setting: str) -> bool:
        """Whether a setting is on that kuvasz turns on for a cluster."""
        return self.conf.get(setting, "true").strip().lower() == "true"


#: What a reader gathers at least, however many there are: with less, each transaction would come in parts.
_LEAST_SHARE_BYTES = 256 << 10


class PipelineConfig(Section):
    """How changes travel: how often they are committed, and what they may take up meanwhile."""

    workers: Annotated[kinds.Whole, kinds.between(1, 256)] = 2
    """Tables are spread over this many workers; each commits on its own."""

    commit_interval: Annotated[kinds.Duration, kinds.durations("10ms", "1h")] = 1.0
    """A table's changes are committed this often. Shorter: fresher; longer: fewer files and snapshots. Where many
    tables of a worker have changes it is longer: 40 ms for each of them."""

    memory: Annotated[kinds.Size, kinds.sizes("1MB", "1TB")] = 1024 * _MB
    """Raw changes that wait in memory, of all sources together; above it, reading pauses, but for sources that have
    less of it than an equal share: a quarter more for all of these. No more than two commits (`commit_bytes`) of each
    worker, or two parts of a transaction, are read ahead."""

    commit_bytes: Annotated[kinds.Size, kinds.sizes("64kB", "64GB")] = Field(
        default_factory=lambda data: min(64 * _MB, _share(data, 4))
    )
    """A commit is made early when so much waits for a worker. 64MB, or a quarter of `memory` if that is less."""

    transaction_spill_bytes: Annotated[kinds.Size, kinds.sizes("64kB", "64GB")] = Field(
        default_factory=lambda data: min(32 * _MB, _share(data, 8))
    )
    """A larger transaction is written to the lake in parts before it ends, and shown when it has ended.
    32MB, or an eighth of `memory` if that is less; with many sources, each source's share of a quarter."""

    chunk_bytes: Annotated[kinds.Size, kinds.sizes("64kB", "1GB")] = 8 * _MB
    """A Spark task takes about this much raw data."""

    max_row_bytes: Annotated[kinds.Size, kinds.sizes("64kB", "4GB")] = 256 * _MB
    """A larger row of the stream (an UPDATE may send it twice, old and new) puts its table of its source into error
    before it is decoded, which takes about ten times its size; with `on_bad_value: reject` it is rejected."""

    copy_rows_per_second: Annotated[kinds.Whole, kinds.between(1, 10**12)] | None = None
    """Copies read no more from a server (host and port), all its databases and tables together, to spare it; no limit
    by default. A server then has one copying session for each 100,000 of it, up to `copy_parallelism`.
    `copy.rows_per_second` wins, and may change while kuvasz runs."""

    copy_parallelism: Annotated[kinds.Whole, kinds.between(1, 1024)] | None = None
    """Sessions that copy one table side by side, for each source; the number of Spark's cores by default."""

    park_bytes: Annotated[kinds.Size, kinds.sizes("0B", "16TB")] = 1024 * _MB
    """Changes of a table that does not follow (in error, paused) are kept in `state`, up to so many bytes for each
    table and source, and its source keeps no WAL for them. 0: they stay in the source's WAL, as those of a table that
    is being copied do."""

    when_parked_full: WhenParkedFull = WhenParkedFull.HOLD
    """What then comes: hold: the source keeps its WAL from there on; resync: what is kept is dropped, and the table
    is copied again (a paused one when it is resumed)."""

    mask_secret: kinds.Text | None = None
    """The key of the pseudonyms that `mask: {column: hmac}` gives; at least 16 characters. Keep it: with another one
    equal values get other pseudonyms, and tables that have some are copied again, or stop."""

    seal_secret: kinds.Text | None = None
    """With it rows are encrypted (AES-256-GCM) that kuvasz keeps outside the lake for longer: what is parked
    (`park_bytes`), and the staged log of a cluster (`cluster.log`); at least 16 characters, such as
    `${file:/run/secrets/kuvasz-seal}`. Keep it: what was sealed with it cannot be read without."""

    earlier_seal_secret: kinds.Text | None = None
    """The `seal_secret` of before: nothing is sealed with it any more, and what was is read."""

    state: kinds.Text = ".kuvasz"
    """A folder on a local, lasting disk: the position indexes, the spool of chunks on their way to Spark, the changes
    of tables that do not follow (`park_bytes`), and small files that say what is paused and prove that nothing is
    missing. The indexes can be rebuilt; a table whose changes are gone has to be copied again, which is noticed. One
    kuvasz at a time: a second one is refused."""

    @property
    def most_waiting_bytes(self) -> int:
        """Raw changes at which reading pauses: what is further ahead of the workers makes nothing faster."""
        return min(self.memory, 2 * max(self.workers * self.commit_bytes, self.transaction_spill_bytes))

    def share_bytes(self, sources: int) -> int:
        """What the reader of one of so many sources may gather before it hands it on: all together hold a quarter."""
        return max(self.memory // (4 * max(1, sources)), _LEAST_SHARE_BYTES)

    @property
    def sealing_secrets(self) -> SealingSecrets:
        """What seals rows that are kept outside the lake for longer, and opens them."""
        return SealingSecrets(self.seal_secret, self.earlier_seal_secret)

    def anchored(self, folder: Path) -> PipelineConfig:
        """Return the same with absolute paths; see `Config.anchored`."""
        return self.model_copy(update={"state": _from(folder, self.state)})

    @property
    def state_folder(self) -> Path:
        """The state folder, absolute."""
        return Path(self.state).absolute()


class RowOrder(enum.StrEnum):
    """The order of rows in files that maintenance writes."""

    ARRIVAL = "arrival"
    KEY = "key"


class MaintenanceConfig(Section):
    """How the tables' files are kept few, large and free of dead rows; `maintenance: off` leaves it to others."""

    enabled: bool = True
    """Whether kuvasz maintains its tables by itself; `kuvasz maintain` does so in any case."""

    interval: Annotated[kinds.Duration, kinds.durations("50ms", "1d")] = 60.0
    """Every table is looked at this often."""

    merge_interval: Annotated[kinds.Duration, kinds.durations("50ms", "1d")] = 0.5
    """A table that `min_files` files came to is looked at this soon, to merge what is small; later where that takes
    more than a quarter of the time."""

    target_file_size: Annotated[kinds.Size, kinds.sizes("64kB", "4GB")] = 128 * _MB
    """Files are merged until they are about this large."""

    min_files: Annotated[kinds.Whole, kinds.between(2, 10000)] = 8
    """So many files of about one size, of one partition, of one source or of several each, are merged into one."""

    max_dead_percent: Annotated[kinds.Whole, kinds.between(1, 100)] = 30
    """A file is written anew when so many of its rows, in percent, are deleted or replaced."""

    order: RowOrder = RowOrder.ARRIVAL
    """arrival: rows keep their order; key: the rows of each file that is written anew are sorted by the key, in
    memory."""

    snapshot_age: Annotated[kinds.Duration, kinds.durations("0ms", "365d")] = 1800.0
    """Older snapshots are expired: longer than any query runs. Tags and branches keep theirs."""

    snapshots_kept: Annotated[kinds.Whole, kinds.between(1, 100000)] = 30
    """The newest snapshots, kept whatever their age."""

    orphan_age: Annotated[kinds.Duration, kinds.durations("1h", "365d")] = 259200.0
    """Files of kuvasz that no snapshot knows are removed when they are older, once a day. Longer than any copy of a
    table by another kuvasz takes."""

    clean_branch: bool = False
    """After `kuvasz maintain --full` the branch `clean` names a state without any delete file, for readers that do
    not know them."""


class Role(enum.StrEnum):
    """What the owner of a token may do; each may what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def may(self, needed: Role) -> bool:
        """Whether it is enough where another one is needed."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


class TokenConfig(Section):
    """A token for the management API, and whose it is."""

    name: kinds.Text
    """Whose it is: `ann`, `grafana`. The log names him by it."""

    role: Role
    """viewer: sees all there is to see, also errors that may quote rows; operator: also pauses, resumes, retries,
    resyncs, maintains and begins sources again; admin: also has the map read again, and changed where it is
    `map.writable`."""

    token: kinds.Token
    """What `Authorization: Bearer …` brings, at least 16 characters: `${VAR}`, or `${file:…}`, which is read again
    while kuvasz runs: another token in it counts within seconds, and the one before no more."""


class TlsConfig(Section):
    """The certificate of the HTTP server. Its files are read again when they change."""

    certificate: kinds.Text
    """A PEM file: the certificate, with those that signed it behind it."""

    key: kinds.Text
    """A PEM file: its key, without a passphrase."""

    def anchored(self, folder: Path) -> TlsConfig:
        """Return the same with absolute paths; see `Config.anchored`."""
        return self.model_copy(
            update={"certificate": _from(folder, self.certificate), "key": _from(folder, self.key)}
        )  # fmt: skip


class ServerConfig(Section):
    """Metrics, health, status and the management API over HTTP."""

    address: kinds.Address | None = "127.0.0.1:8000"
    """`host:port` to listen on; `null` for none. Who only looks needs no token: keep it on a network you trust."""

    hosts: tuple[kinds.Text, ...] = ()
    """Names under which others ask for the server, besides `localhost`, this machine's, the one in `address`, and any
    IP address: those that a proxy or a service of Kubernetes gives it. `*`: any name, also one that a web page in
    somebody's browser made up."""

    metrics: MetricsScope = MetricsScope.PER_TABLE
    """What is counted of tables on `/metrics`: per_table: each for all of its sources together; per_source: for each
    source, with a label more, as many as sources times tables."""

    tls: TlsConfig | None = None
    """Has all of it answered by https alone, with this certificate."""

    tokens: tuple[TokenConfig, ...] = ()
    """Tokens for people and programs, beside the one that kuvasz makes at each start for its own verbs."""

    @property
    def host(self) -> str | None:
        """The host, without the brackets of an IPv6 address."""
        return None if self.address is None else kinds.split_address(self.address)[0]

    @property
    def port(self) -> int | None:
        """The port; 0 lets the system choose."""
        return None if self.address is None else kinds.split_address(self.address)[1]

    def anchored(self, folder: Path) -> ServerConfig:
        """Return the same with absolute paths; see `Config.anchored`."""
        return self if self.tls is None else self.model_copy(update={"tls": self.tls.anchored(folder)})


class LogConfig(Section):
    """What kuvasz tells of itself, and where."""

    level: LogLevel = LogLevel.INFO
    """error: what a person has to look at; warning: also what was overcome, or is tried again; info: also beginnings,
    ends and changes, and once a minute how much came of each source; debug: also each commit. It counts at once when
    the map is read again."""

    format: LogFormat = LogFormat.AUTO
    """plain: lines for people; json: one object a line; auto: plain, and on a terminal live lines below."""

    file: kinds.Text | None = None
    """A file in the place of stderr, readable by its owner alone unless it is there already. It may be moved away at
    any time, as logrotate does: the next line makes it anew."""

    def anchored(self, folder: Path) -> LogConfig:
        """Return the same with absolute paths; see `Config.anchored`."""
        return self if self.file is None else self.model_copy(update={"file": _from(folder, self.file)})


class TracingConfig(Section):
    """Traces for OpenTelemetry; `OTEL_…` in the environment say the rest."""

    enabled: bool = False
    """Whether each mini-transaction is sent as a trace, by OTLP over HTTP. Needs `pip install 'kuvasz[tracing]'`."""

    endpoint: kinds.Text | None = None
    """The collector's, such as `http://collector:4318`; `OTEL_EXPORTER_OTLP_ENDPOINT` by default."""


class MapConfig(Section):
    """How this file itself is used while kuvasz runs; see `kuvasz reload`."""

    watch: bool = False
    """Whether the file is read again by itself when it changed; SIGHUP and `kuvasz reload` do so in any case."""

    drop_removed: bool = False
    """Whether slot and publication of a source that leaves the map while kuvasz runs are dropped, when a person had
    the map read and not `watch` alone. Otherwise they stay, for the day it comes back, and the slot holds WAL until
    then."""

    writable: bool = False
    """Whether the management API may change this file: groups, their urls and tables. It is exchanged as a whole,
    with comments and order as they are, and the version before stays beside it as `<name>.before`. A group may then
    be without urls or tables: nothing is replicated of it."""


class CutsConfig(Section):
    """All tables tagged at one moment, again and again; see `kuvasz cut`. Read anew with the map."""

    every: Annotated[kinds.Duration, kinds.durations("1s", "365d")] | None = None
    """How often: at whole multiples of it since midnight 1970 UTC, `1d` at midnight. Null: only when it is asked for.
    Each cut holds its sources for a moment, and keeps its snapshots' files for `keep`."""

    keep: Annotated[kinds.Duration, kinds.durations("1m", "3650d")] = 86400.0
    """How long the tags of such a cut are kept at least."""


class VerificationConfig(Section):
    """Each table compared with its source, again and again; see `kuvasz verify`. Read anew with the map."""

    every: Annotated[kinds.Duration, kinds.durations("1s", "365d")] | None = None
    """How long a table goes at most without being compared, as far as `share` lets it be: one table after another,
    whichever waits longest. Null: only when it is asked for."""

    share: Annotated[kinds.Whole, kinds.between(1, 100)] = 5
    """The part of the time, in percent, in which a table is being compared: by one Spark task at a time, over one
    session with its source."""

    rows_per_second: Annotated[kinds.Whole, kinds.between(1, 10**12)] | None = None
    """Such a session reads no more; no limit by default."""

    between: kinds.DayTimes | None = None
    """Begins comparisons only between two times of the day, in UTC: `22:00-05:30`."""

    fix: bool = False
    """What differs is mended as `kuvasz verify --fix` does, and told all the same."""


class Weekday(enum.StrEnum):
    """The days of a week, from its first on."""

    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


class CopyLimits(Section):
    """How much copies take of one server, and when."""

    rows_per_second: Annotated[kinds.Whole, kinds.between(1, 10**12)] | None = None
    """Copies read no more from the server, all its databases and tables together; null: as
    `pipeline.copy_rows_per_second` says."""

    sessions: Annotated[kinds.Whole, kinds.between(1, 1024)] | None = None
    """And in no more sessions at a time; of one table never more than `pipeline.copy_parallelism`."""

    hours: kinds.DayTimes | None = None
    """Large tables are copied between two times of the day alone: `22:00-06:00`."""

    time_zone: kinds.TimeZone = "UTC"
    """Of `hours`: `Europe/Berlin`."""

    days: tuple[Weekday, ...] = ()
    """Of the week, on which these hours begin: `[fri, sat]`; every day by default."""

    max_snapshot_age: Annotated[kinds.Duration, kinds.durations("1m", "365d")] | None = None
    """As long as a copy's snapshot is there, its server cannot vacuum what was deleted since. That of a large table's
    copy gets no older: a copy that can go on where it was takes another one, any other is given up, and its table is
    in error until a person has it tried again. No bound by default."""

    copied_from: kinds.Url | None = Field(default=None, alias="from")
    """A standby of the server, which tables are read from in its place: `postgresql://db1-standby:5432`. What the url
    leaves out (user, password, database, parameters) is as in the source's."""

    def is_open(self, now: float) -> bool:
        """Whether large tables may be copied at a time, in Unix seconds."""
        if self.hours is None:
            return True
        begin, end = kinds.day_times(self.hours)
        local = datetime.datetime.fromtimestamp(now, self._zone)
        at = 60 * local.hour + local.minute
        if begin < end:
            return begin <= at < end and self._has(local)
        return (at >= begin and self._has(local)) or (at < end and self._has(local - datetime.timedelta(days=1)))

    def opens_at(self, now: float) -> float | None:
        """Return when the next hours begin, in Unix seconds; None: at any time."""
        if self.hours is None:
            return None
        hour, minute = divmod(kinds.day_times(self.hours)[0], 60)
        first = datetime.datetime.fromtimestamp(now, self._zone).replace(
            hour=hour, minute=minute, second=0, microsecond=0
        )
        # By the clock on the wall, also where that is set forward or back in between.
        coming = (first + datetime.timedelta(days=days) for days in range(9))
        return next(day.timestamp() for day in coming if day.timestamp() > now and self._has(day))

    @property
    def _zone(self) -> datetime.tzinfo:
        return datetime.UTC if self.time_zone == "UTC" else zoneinfo.ZoneInfo(self.time_zone)

    def _has(self, day: datetime.datetime) -> bool:
        return not self.days or list(Weekday)[day.weekday()] in self.days


class CopyConfig(CopyLimits):
    """How servers are spared while their tables are copied. Read anew with the map."""

    servers: dict[str, CopyLimits] = Field(default_factory=dict)
    """What is otherwise for one server, by `host:port` as its sources' urls have them: `db1:5432`."""

    def of(self, servers: str) -> CopyLimits:
        """Return the limits of a server.

        Args:
            servers: ``host:port``, several with commas, as a url has them.
        """
        own = next((own for name, own in self.servers.items() if set(servers.split(",")) & _hosts(name)), None)
        set_there = frozenset[str]() if own is None else own.model_fields_set
        fields = CopyLimits.model_fields
        # They were validated as what a person writes, which a duration is no more.
        return CopyLimits.model_construct(
            **{name: getattr(own if name in set_there else self, name) for name in fields}
        )

    @property
    def standbys(self) -> list[secrets.SecretUrl]:
        """The urls of all standbys that are copied from."""
        return [one.copied_from for one in (self, *self.servers.values()) if one.copied_from is not None]


def _hosts(name: str) -> set[str]:
    return {host.strip() for host in name.split(",")}


def _location(place: str | None) -> str | None:
    return place if place is None or "://" in place else f"file://{Path(place).absolute()}"


class ClusterConfig(Section):
    """Several processes with one map, of which one replicates and the others stand by to take over."""

    coordinator: kinds.Url | None = None
    """The url of a PostgreSQL database that says who replicates, and keeps what is remembered of sources and tables.
    A schema `kuvasz` is made in it at the first start. Without one a process knows of no other."""

    name: kinds.Text = "kuvasz"
    """Tells clusters of one coordinator from each other. All processes of one have the same map, and a
    `pipeline.state` of their own."""

    lease: Annotated[kinds.Duration, kinds.durations("2s", "10m")] = 10.0
    """A process that nobody has heard of for so long is taken for dead, and another one takes over. One that cannot
    reach the coordinator for so long ends itself."""

    role: ClusterRole = ClusterRole.ALL
    """`all` replicates. With a log that can be shared out: `read` has the slots of the sources and stages what comes,
    without a JVM; `apply` does all else. `--role` says it for one of several processes with the same file."""

    log: kinds.Text | None = None
    """A folder in the lake's store, such as `s3://lake/_kuvasz/log`, in which changes are staged: no source keeps WAL
    while the lake cannot be written. Without it sources keep what is not in the lake yet."""

    log_interval: Annotated[kinds.Duration, kinds.durations("20ms", "60s")] = 0.2
    """What has come of all sources is staged this often, as one object."""

    log_bytes: Annotated[kinds.Size, kinds.sizes("64kB", "1GB")] = 16 * _MB
    """And as soon as it is so much. Twice as much may wait in memory when the store cannot be written."""

    indexes: kinds.OffOrText | None = None
    """A folder in the lake's store, such as `s3://lake/_kuvasz/indexes`, in which indexes of tables are kept: who
    takes a table over need not read its keys. None of it is a value of a row. By default `_kuvasz/indexes` in
    `lake.warehouse`, but none with a rest catalog; `off` for none."""

    group: kinds.Text | None = None
    """A second deployment, with a lake of its own, that applies what the first one's processes stage: `blue`. It has
    no slots of its own, and all that it remembers is its own. `kuvasz cluster retire blue` ends it."""

    @property
    def key(self) -> str:
        """What tells processes that share what they remember from all others of one coordinator."""
        return self.name if self.group is None else f"{self.name}{GROUPS}{self.group}"

    def anchored(self, folder: Path) -> ClusterConfig:
        """Return the same with absolute paths; see `Config.anchored`."""
        told = {"log": self.log, "indexes": None if self.indexes == OFF else self.indexes}
        paths = {name: _from(folder, place) for name, place in told.items() if place and "://" not in place}
        return self.model_copy(update=paths) if paths else self

    @property
    def log_location(self) -> str | None:
        """The folder of the log with its scheme, which for a path is ``file://``; None if there is none."""
        return _location(self.log)


class WebhookConfig(Section):
    """A webhook that is told of commits and of what happens."""

    webhook: kinds.Webhook
    """Where it is, `https://…` or `http://…`. What is sent to it goes nowhere else: no redirect is followed."""

    secret: kinds.Token
    """What each request is signed with, at least 16 characters: `${VAR}`, or `${file:…}`, which is read again while
    kuvasz runs."""

    on: Annotated[tuple[NoticeKind, ...], Field(min_length=1)] = tuple(NoticeKind)
    """What it is told of: commit: each commit that changed rows of a table, with its snapshot and positions; error: a
    table or source stops, or cannot go on, as it begins and once an hour, and when a source goes on; schema: a source
    table changed; cut; reject: rows were left out."""

    batch: Annotated[kinds.Duration, kinds.durations("1s", "1h")] = 10.0
    """What has come is told this often, in one request or as many as it takes."""

    name: kinds.Text | None = None
    """What it is called in requests, logs and metrics, and what is kept of it over restarts; its host by default."""

    @property
    def label(self) -> str:
        """What it is called."""
        return self.name or urllib.parse.urlsplit(self.webhook.get()).netloc


class UrlConfig(Section):
    """One source: a database of a group of equal ones."""

    url: kinds.Url
    """`postgresql://user:password@host:5432/database?sslmode=…`. Every parameter is kept on every connection."""

    replication_url: kinds.Url | None = None
    """A second role, for all that needs `REPLICATION`: `postgresql://kuvasz_slots:password@`. It makes, reads and
    drops slots and reads no table, and the role of `url` can do without `REPLICATION`, which functions of a table's
    owner could use else. It names no host and no database; what else it leaves out, but secrets, is as in `url`."""

    sid: kinds.Text | None = None
    """The source's id in the column `sid` of its targets. Needed as soon as a target has several sources; it is
    part of the rows' key and of the slot's name, so it must not change later."""

    schemas: kinds.Tenants | None = None
    """A schema per tenant: every schema whose whole name matches is taken, also one that appears later, with the same
    tables. The part in parentheses is the `sid` of its rows; that of the url is in the slot's name alone then."""

    origin: Origin = Origin.ANY
    """any: all changes of the stream; none: those alone that were made at this database, and not what came to it by
    logical replication (PostgreSQL 16). The first copy and comparisons cannot tell: they take all rows."""


class TableMaintenanceConfig(Section):
    """How one table's files are kept, where that is otherwise than `maintenance` says."""

    enabled: bool = True
    """Whether kuvasz maintains the table by itself, if it does so at all; `kuvasz maintain` does so in any case."""

    target_file_size: Annotated[kinds.Size, kinds.sizes("64kB", "4GB")] | None = None
    """Files are merged until they are about this large."""

    min_files: Annotated[kinds.Whole, kinds.between(2, 10000)] | None = None
    """So many files of about one size are merged into one."""

    max_dead_percent: Annotated[kinds.Whole, kinds.between(1, 100)] | None = None
    """A file is written anew when so many of its rows, in percent, are deleted or replaced."""

    order: RowOrder | None = None
    """arrival or key: the order of rows in files that are written anew."""

    snapshot_age: Annotated[kinds.Duration, kinds.durations("0ms", "365d")] | None = None
    """Older snapshots are expired."""

    snapshots_kept: Annotated[kinds.Whole, kinds.between(1, 100000)] | None = None
    """The newest snapshots, kept whatever their age."""

    @property
    def said(self) -> dict[str, object]:
        """What it says, by the names that it has in `maintenance`."""
        return self.model_dump(exclude_none=True, exclude={"enabled"}) | ({} if self.enabled else {"enabled": False})


#: What is said of a value that has no target.
_NO_ROUTE = " has no target: `route` neither allows it nor has a `rest`"


class RouteConfig(Section):
    """How the rows of one source table go to several targets."""

    by: kinds.Text
    """The column whose value says where a row goes; or a Spark SQL expression over the source's columns."""

    to: kinds.Target
    """The targets; `{kind}` stands for the value of a column `kind`, `{value}` for that of whatever `by` is."""

    allow: tuple[kinds.RouteValue, ...]
    """The values that have a target of their own, each as the column has it: texts, whole numbers, true and false."""

    rest: kinds.Target | None = None
    """The target of all other rows, and of those without a value. Without one they fit nowhere: `on_bad_value` says
    what becomes of them, in the target of the first value."""

    def target_of(self, value: str) -> str:
        """Return the target of a value, as a map would name it."""
        plain = value.replace(".", "_").replace('"', "_")  # which would make another name of it
        return self.to.replace(f"{{{self.by.strip('`')}}}", plain).replace("{value}", plain)

    def entries(self, condition: str | None) -> tuple[tuple[str, str], ...]:
        """Return each target with the condition, in Spark SQL, that rows fulfil which go there.

        Args:
            condition: What all rows have to fulfil; what is left out by it need not fit anywhere.
        """
        known = ", ".join(names.sql_literal(value) for value in self.allow)
        mine = ((names.plain_text(one), names.sql_literal(one)) for one in self.allow)
        routes = [(self.target_of(text), f"{self._by} = {literal}") for text, literal in mine]
        if self.rest is not None:
            routes.append((self.rest, f"{self._by} IS NULL OR {self._by} NOT IN ({known})"))
        found = [(target, _both(condition, is_mine)) for target, is_mine in routes]
        if self.rest is None and routes:
            target, is_mine = routes[0]
            value = f"coalesce(CAST({self._by} AS STRING), 'NULL')"
            refusal = f"raise_error(concat({value}, {names.sql_literal(_NO_ROUTE)}))"
            is_refused = "" if condition is None else f"WHEN NOT coalesce({condition}, false) THEN false "
            found[0] = target, f"CASE {is_refused}WHEN {self._by} IN ({known}) THEN {is_mine} ELSE {refusal} END"
        return tuple(found)

    @property
    def _by(self) -> str:
        return self.by if names.is_word(self.by) else f"({self.by})"


def _both(condition: str | None, other: str) -> str:
    return other if condition is None else f"({condition}) AND ({other})"


class TableConfig(Section):
    """What becomes of one source table.

    Large because a person writes all that is said of a table in one place.
    """

    type: TableType = TableType.CLONE
    """clone: the table as it is; append: never deletes; history: every version with its time span; changelog:
    every change as a row."""

    enabled: bool = True
    """false: as if the map did not have it, but for what it says of the others: its rows stay, and when it is taken
    in again it is compared with the source or copied, as a table that comes back is."""

    initial: Initial = Initial.COPY
    """What becomes of the rows that the table has when it is taken in: copy; skip: the lake gets what is changed from
    then on alone; from_lsn: what is changed from an earlier LSN on, which its slot has still. Not for a clone
    without a key."""

    from_lsn: dict[kinds.Text, kinds.Lsn] | None = None
    """The LSNs of `initial: from_lsn`, by the sid or name of the source: `{eu: 16/B374D848}`. A source that is not
    named is followed from the moment at which its table is taken in."""

    target: kinds.Target | None = None
    """The table in the lake, `name` or `namespace.name`; the source table's own name in `lake.namespace` by
    default. Of a pattern's tables `{schema}` and `{table}` stand for the names at the source."""

    route: RouteConfig | None = None
    """The table's rows go to several targets by a value: `{by: kind, to: "events_{kind}", allow: [click, view], rest:
    events_other}`. An UPDATE that changes the value moves the row. All else that is said goes for each target."""

    excepted: tuple[kinds.Text, ...] = Field(default=(), alias="except")
    """With a pattern as the table's name (`"public.*"`): tables that it does not take in, names or patterns."""

    partitions_regex: kinds.Regex | None = None
    """Tables of this schema whose whole name matches are one target, also those that appear later."""

    filter: kinds.Text | None = None
    """A Spark SQL condition over the source's columns; rows for which it is not true are left out."""

    set: dict[str, kinds.Text] | None = None
    """The target's columns, each with its Spark SQL expression over the source's columns; no others are taken."""

    mask: dict[str, kinds.Mask] = Field(default_factory=dict)
    """Columns of the target whose values are hidden: hmac (a pseudonym, the same for equal values: HMAC-SHA-256 with
    `pipeline.mask_secret`), hmac:name (the same with a key that is derived for this name: equal values have other
    pseudonyms than under another name) or redact (`***`). NULL stays NULL; the column is a string in the lake."""

    columns: tuple[kinds.Text, ...] | None = None
    """The only columns to take; the key's must be among them. Columns that are added later are not taken."""

    exclude: tuple[kinds.Text, ...] | None = None
    """Columns to leave out: nobody looks at their values. Columns that are added later are taken."""

    column_list: bool = False
    """Whether what `columns` or `exclude` leaves out stays at the source: the publication names the other columns
    (PostgreSQL 15, table and publication of its own role, no REPLICA IDENTITY FULL; with `exclude` of a clone alone).
    The source then refuses to drop or retype a column that is taken; with `exclude`, a new one has the table copied
    again."""

    row_filter: bool = False
    """Whether rows outside `filter` stay at the source in the stream, too, as far as PostgreSQL can tell them by the
    columns of the replica identity, which are all with REPLICA IDENTITY FULL: the publication gets a row filter
    (PostgreSQL 15, table and publication of its own role, a clone that is not partitioned). The source then refuses
    to drop or retype a column that it reads, and refuses UPDATEs from another replica identity without such a column
    on until kuvasz has seen that."""

    key: tuple[kinds.Text, ...] | None = None
    """Columns that identify a row, for a table without primary key or replica identity index."""

    partition_by: tuple[kinds.Partition, ...] = ()
    """The target's partitions: columns, `years|months|days|hours(column)`, `bucket(n, column)`,
    `truncate(n, column)`."""

    sort_by: tuple[kinds.Ordering, ...] = ()
    """The order of rows within files: columns or transforms, with `asc`, `desc`, `nulls first`, `nulls last`."""

    location: kinds.Text | None = None
    """Where the target's files lie, a path or a url of the lake's store; in the warehouse by default. A table that is
    there already stays where it is."""

    branch: kinds.Branch | None = None
    """The target's branch that is written, instead of `lake.branch`: `main`, or one that `kuvasz publish` shows."""

    properties: kinds.Texts = Field(default_factory=dict)
    """Iceberg's table properties that the target is to have: `owner`, `read.split.target-size`, and for the files
    that kuvasz writes `write.parquet.compression-codec` (zstd, snappy, gzip, lz4, uncompressed) with its `-level`.
    One that is taken out of the map stays. Those that kuvasz goes by are refused."""

    maintenance: Annotated[TableMaintenanceConfig, BeforeValidator(kinds.switch)] = Field(
        default_factory=TableMaintenanceConfig
    )
    """What of `maintenance` is otherwise for the target: `{snapshot_age: 30d}`; `off` leaves its files to others."""

    commit_interval: Annotated[kinds.Duration, kinds.durations("10ms", "1d")] | None = None
    """The target's changes are committed this often instead of `pipeline.commit_interval`, and earlier where much
    waits. Until then they wait in memory, and its sources keep their WAL from there on."""

    on_schema_change: OnSchemaChange = OnSchemaChange.AGREE
    """agree: the target follows, but another name or type of a column that other databases fill waits, with
    its table's changes, until these have changed it, too; evolve: the target follows; hold: the table waits for a
    person, its changes are kept; stop: the table stops with an error."""

    out_of_range: OutOfRange = Field(default=OutOfRange.ERROR, json_schema_extra=kinds.or_null)
    """Dates and timestamps that Iceberg cannot hold (infinity, year 20000): error stops the table, null, or clamp
    to the nearest that it can. null goes for NaN and Infinity in decimals, too. A key is always refused: see
    `types`."""

    on_bad_value: OnBadValue = OnBadValue.STOP
    """A row with a value that the lake cannot hold, for which an expression fails, or that is too large: stop stops
    this source's table; reject writes it down in the table `rejects` (needs `lake.about`), and goes on without that
    row and its earlier version; keep, of a clone with a key, does the same and leaves the earlier version there,
    which is not what the source has."""

    types: dict[str, kinds.LakeType] = Field(default_factory=dict)
    """Source columns that have another type in the lake than their own: `column: string` takes PostgreSQL's text of
    any column, whatever the value; `column: decimal(p,s)` is for numeric, and a value that does not fit stops the
    table."""

    deletes: Deletes = Deletes.HARD
    """What becomes of the row of a clone that is deleted at the source: hard, it goes; soft, it stays as it was, with
    the source's time of the deletion in `_deleted_at`, which is NULL for rows that live."""

    partition_removed: PartitionRemoved | None = None
    """What becomes of the rows of a partition that is detached from a partitioned table, or dropped. delete (by
    default, for a clone and a history): they go, and versions end; keep: they stay, as in any other table."""

    decimals: dict[str, kinds.DecimalType] = Field(default_factory=dict)
    """The same as `types`, for `decimal(p,s)` alone."""

    def routed(self, target: str, condition: str) -> TableConfig:
        """Return what is said of one of the targets that `route` has, with what its rows fulfil."""
        return self.model_copy(update={"target": target, "filter": condition, "location": None})

    @property
    def table_location(self) -> str | None:
        """The location with its scheme, which for a path is ``file://``, without a slash at its end."""
        given = self.location
        return given if given is None else (given if "://" in given else f"file://{given}").rstrip("/")

    @property
    def removed_partitions(self) -> PartitionRemoved:
        """What becomes of the rows of a partition that is gone."""
        can_delete = self.type in {TableType.CLONE, TableType.HISTORY}
        return self.partition_removed or (PartitionRemoved.DELETE if can_delete else PartitionRemoved.KEEP)

    @property
    def asked_types(self) -> dict[str, str]:
        """Column -> ``string`` or ``decimal(p,s)``."""
        return {**self.decimals, **self.types}


class DatabaseConfig(Section):
    """A group of databases of one shape, and the tables to take from each of them."""

    database: kinds.Text
    """The group's name; it is part of the slots' names, so it must not change later."""

    urls: tuple[UrlConfig, ...]
    """The databases of the group."""

    tables: dict[str, Annotated[TableConfig, BeforeValidator(kinds.empty)]]
    """Source table -> what becomes of it, or nothing for a clone. `schema.table`; the schema is `public` if none
    is named; a dot inside a name needs double quotes: `'"a.b".c'`. With `*`, which stands for any text, it is a
    pattern: it takes in each table like it that has no entry of its own, also one that appears later."""

    max_tables: Annotated[kinds.Whole, kinds.between(1, 1_000_000)] = 5000
    """Tables of one source that may be like the patterns of `tables`, and that may come to it within a day, those
    that are gone again included. A source with more is in error until some are dropped, or this is more: whoever may
    create tables there would fill the lake with them, and keep all others waiting for the map. With `schemas` and
    `partitions_regex` it is 10,000 tables of one target."""

    on_slot_lost: OnSlotLost = OnSlotLost.STOP
    """When the slot is gone: stop with exit 5; repair: a new slot, then compare with the source and mend; resync:
    a new slot and a new copy."""

    consistency: Consistency = Consistency.TABLE
    """table: each table of the group shows whole transactions of its sources, and is committed on its own; group: all
    of them show a transaction at once, in one commit of the catalog. Needs a jdbc catalog, or a rest catalog that
    commits several tables in one request; the group's targets must be fed by no other group. It cannot change while
    kuvasz runs."""

    _found: FoundTables[TableConfig] | None = PrivateAttr(
        default=None
    )  #: what its patterns take in, where that is known

    @property
    def found(self) -> FoundTables[TableConfig] | None:
        """What its patterns take in; None where nobody has looked."""
        return self._found

    @property
    def patterns(self) -> dict[str, TableConfig]:
        """The entries that are patterns."""
        return {key: table for key, table in self.tables.items() if names.is_pattern(key)}

    @property
    def entries(self) -> dict[str, TableConfig]:
        """The entries of single tables: those that have one of their own, then those that patterns take in."""
        single = {key: table for key, table in self.tables.items() if not names.is_pattern(key)}
        return single if self._found is None else single | self._found.entries

    def knowing(self, found: FoundTables[TableConfig]) -> DatabaseConfig:
        """Return the same with what its patterns take in."""
        copied = self.model_copy()
        copied._found = found
        return copied


class Config(Section):
    """The whole configuration."""

    lake: Annotated[LakeConfig, BeforeValidator(kinds.empty)] = Field(default_factory=LakeConfig)
    """The Iceberg catalog and where the tables live."""

    spark: Annotated[SparkConfig, BeforeValidator(kinds.empty)] = Field(default_factory=SparkConfig)
    """The Spark session."""

    pipeline: Annotated[PipelineConfig, BeforeValidator(kinds.empty)] = Field(default_factory=PipelineConfig)
    """How changes travel."""

    maintenance: Annotated[MaintenanceConfig, BeforeValidator(kinds.switch)] = Field(
        default_factory=MaintenanceConfig
    )
    """How the tables' files are kept few, large and free of dead rows."""

    server: Annotated[ServerConfig, BeforeValidator(kinds.empty)] = Field(default_factory=ServerConfig)
    """Metrics, health, status and the management API over HTTP."""

    log: Annotated[LogConfig, BeforeValidator(kinds.empty)] = Field(default_factory=LogConfig)
    """What kuvasz tells of itself, and where."""

    tracing: Annotated[TracingConfig, BeforeValidator(kinds.empty)] = Field(default_factory=TracingConfig)
    """Traces for OpenTelemetry."""

    map: Annotated[MapConfig, BeforeValidator(kinds.empty)] = Field(default_factory=MapConfig)
    """How this file itself is used while kuvasz runs."""

    cuts: Annotated[CutsConfig, BeforeValidator(kinds.empty)] = Field(default_factory=CutsConfig)
    """All tables tagged at one moment on a schedule."""

    verify: Annotated[VerificationConfig, BeforeValidator(kinds.empty)] = Field(default_factory=VerificationConfig)
    """Each table compared with its source on a schedule."""

    copy: Annotated[CopyConfig, BeforeValidator(kinds.empty)] = Field(default_factory=CopyConfig)  # type: ignore[assignment]
    """How servers are spared while their tables are copied."""

    cluster: Annotated[ClusterConfig, BeforeValidator(kinds.empty)] = Field(default_factory=ClusterConfig)
    """Several processes with one map."""

    notify: tuple[WebhookConfig, ...] = ()
    """Webhooks that are told of commits and of what happens."""

    databases: tuple[DatabaseConfig, ...]
    """What is replicated. A file that is only this list is a whole configuration."""

    @property
    def indexes_location(self) -> str | None:
        """The folder in which processes keep indexes for each other, with its scheme; None if they do not.

        What a rest catalog calls a warehouse may be a name alone, and it may lend what opens a table's folder, and no
        other one.
        """
        told, warehouse = self.cluster.indexes, self.lake.warehouse_location
        if self.cluster.coordinator is None or told == OFF:
            return None
        if told is None and (self.lake.type is CatalogType.REST or "://" not in warehouse):
            return None
        return _location(told) or f"{warehouse}/_kuvasz/indexes"

    def copy_limits(self, servers: str) -> CopyLimits:
        """Return the limits of copies from a server; see `CopyConfig.of`."""
        limits = self.copy.of(servers)
        if limits.rows_per_second is not None or self.pipeline.copy_rows_per_second is None:
            return limits
        return limits.model_copy(update={"rows_per_second": self.pipeline.copy_rows_per_second})

    def anchored(self, folder: Path) -> Config:
        """Return the same with absolute paths: a map has to mean one lake and one state, wherever it is read.

        Args:
            folder: Where relative paths begin: the map's, or the working folder where there is no map.
        """
        return self.model_copy(
            update={
                "lake": self.lake.anchored(folder), "pipeline": self.pipeline.anchored(folder),
                "server": self.server.anchored(folder), "log": self.log.anchored(folder),
                "cluster": self.cluster.anchored(folder),
            }
        )  # fmt: skip


#: The sections whose options the environment may set, by their name in the file.
SECTIONS: dict[str, type[Section]] = {
    "lake": LakeConfig,
    "spark": SparkConfig,
    "pipeline": PipelineConfig,
    "maintenance": MaintenanceConfig,
    "server": ServerConfig,
    "log": LogConfig,
    "tracing": TracingConfig,
    "map": MapConfig,
    "cuts": CutsConfig,
    "verify": VerificationConfig,
    "copy": CopyConfig,
    "cluster": ClusterConfig,
}


def _from(folder: Path, path: Path | str) -> str:
    """Return one text for one place, since the lake's tables keep it; links stay, for ConfigMaps are some."""
    return os.path.normpath(folder.absolute() / path)


def _share(data: dict[str, Any], parts: int) -> int:
    """Return a part of `memory` as a default; the full default if `memory` itself is wrong and said so."""
    memory: int = data.get("memory", 1024 * _MB)
    return memory // parts
