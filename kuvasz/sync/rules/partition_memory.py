"""What a target remembers of the partitions of a source's table, and what a later look makes of it. Pure.

The lake keeps a set of texts (`SourceNotes.remember_partitions`), one for each fact:

- ``16401:733 16410:740 =16410/16413 public.events_1``: a partition as it hung in its tree
  (`partitions.Partition.links`), the file that it had (its relfilenode), its TOAST table if it had one, and its name.
  What an earlier version wrote has the links alone.
- ``seen 16431 25C8D0 public.events_3``: a partition of which the stream has told, at this commit LSN, before any
  look has. If no look ever does, it came and went in between.
- ``astray 16410 25C8D0 public.events_1``: rows of a partition came under its own name, where nobody takes them.
- ``truncated 741 25C8D0``: the stream brought a TRUNCATE of the table itself, which gives each partition a file.
- ``since 25C8D0``: the snapshot of the last copy or comparison. What the stream tells from before it is known by it.
- ``until 25C8D0``: what these partitions hang by and their files were there at this LSN, for the first time as far as
  anybody knows. Earlier versions did not note it.
- ``horizon 281474976711396``: each transaction below (740, on timeline 1) was over when the files were looked at.
- ``types 1:23:-1 2:1082:-1``: the types that the columns had at the last look or copy (`partitions.types`).
- ``kept``: the target has rows of partitions that are gone, because the map says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence

from typing_extensions import override

from kuvasz.config.model import PartitionRemoved
from kuvasz.config.sources import SourceTableSpec
from kuvasz.errors import ChangesLost, TableError, place_of, resync_of, retry_of
from kuvasz.model import TableType
from kuvasz.source.catalog import partitions
from kuvasz.source.catalog.partitions import Partition

_SEEN, _ASTRAY, _TRUNCATED, _SINCE, _HORIZON = "seen ", "astray ", "truncated ", "since ", "horizon "
_UNTIL, _TYPES, _KEPT = "until ", "types ", "kept"

#: No transaction: of a partition that is known to be there, and not by which transaction it hangs.
_NO_XID = ":0"

#: TRUNCATEs of the table that are remembered: the looks that show their files come soon.
_MOST_TRUNCATES = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KnownPartition:
    """A partition as it was when its rows were known to be all there."""

    links: str
    file: int | None = None  #: its relfilenode; None: nobody looked
    name: str = ""
    toast: int = 0  #: OID of its TOAST table; 0: none, or unknown

    @property
    def oid(self) -> int:
        """Its OID, which its last link begins with."""
        return int(self.links.rpartition(" ")[2].partition(":")[0])

    @property
    def is_sure(self) -> bool:
        """Whether it is known how it hung."""
        return not self.links.endswith(_NO_XID)

    def unsure(self) -> KnownPartition:
        """Return this, of which is not known any more how it hung; another TOAST table may have had its OID."""
        return dataclasses.replace(self, links=f"{self.oid}{_NO_XID}", toast=0)

    @property
    def label(self) -> str:
        """Its name for a message."""
        return self.name or f"with OID {self.oid}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SeenPartition:
    """A partition that the stream has told of."""

    oid: int
    lsn: int  #: of the commit that it was told with
    name: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """A TRUNCATE of the table itself that came in the stream."""

    xid: int
    lsn: int  #: of its commit


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KnownPartitions:
    """All that is remembered of one table's partitions."""

    parts: tuple[KnownPartition, ...] = ()
    seen: tuple[SeenPartition, ...] = ()  #: of which no look has told
    astray: tuple[SeenPartition, ...] = ()  #: the last one whose rows came under its own name
    truncated: tuple[Truncated, ...] = ()
    since_lsn: int = 0
    until_lsn: int = 0  #: where the WAL ended when the parts were first found as they are; 0: unknown
    horizon: int = 0  #: 0: unknown
    types: str = ""  #: of the columns; empty: unknown
    has_kept: bool = False

    @property
    def oids(self) -> frozenset[int]:
        """The OIDs of the partitions that were looked at or told of."""
        return frozenset(part.oid for part in self.parts) | frozenset(seen.oid for seen in self.seen)

    def told(self, oid: int, name: str, commit_lsn: int) -> KnownPartitions:
        """Return this with a partition that the stream told of; the same if that is nothing new."""
        if oid in self.oids or commit_lsn < self.since_lsn:
            return self
        return dataclasses.replace(self, seen=(*self.seen, SeenPartition(oid=oid, lsn=commit_lsn, name=name)))

    def strayed(self, oid: int, name: str, commit_lsn: int) -> KnownPartitions:
        """Return this with a partition whose rows came under its own name; the same if a copy has them."""
        if commit_lsn < self.since_lsn:
            return self
        return dataclasses.replace(self, astray=(SeenPartition(oid=oid, lsn=commit_lsn, name=name),))

    def truncated_by(self, xid: int, commit_lsn: int) -> KnownPartitions:
        """Return this with a TRUNCATE of the table; the same if that is nothing new."""
        truncated = Truncated(xid=xid, lsn=commit_lsn)
        if truncated in self.truncated or commit_lsn < self.since_lsn:
            return self
        return dataclasses.replace(self, truncated=(*self.truncated, truncated)[-_MOST_TRUNCATES:])

    def is_emptied_by_stream(self, partition: Partition) -> bool:
        """Whether a partition has its file of a TRUNCATE that the stream brought."""
        return any(truncated.xid == partition.file_xid for truncated in self.truncated)

    def has_toast_of(self, partition: Partition) -> bool:
        """Whether a partition has the TOAST table that it had, and so was not made unlogged."""
        before = {(part.oid, part.toast) for part in self.parts}
        return partition.toast != 0 and (partition.oid, partition.toast) in before

    def is_retyped(self, types: str, altered: Collection[int]) -> bool:
        """Whether some of these columns, by number, have another type by now."""
        before, now = _by_number(self.types), _by_number(types)
        return any(number in before and before[number] != now.get(number) for number in altered)

    @property
    def timeline(self) -> int:
        """The one that this was found on; 0: unknown."""
        return partitions.timeline_of(self.horizon)

    def left(self, at_lsn: int, timeline: int) -> KnownPartitions:
        """Return what counts of this on a timeline that left this one's.

        What committed behind that place never happened there, and its transactions are others: none of its TRUNCATEs
        explains a file, and partitions that may hang by it are looked at like new ones. What was told of partitions
        may stay: it asks for a comparison, and spares none.

        Args:
            at_lsn: Where it was left; 0: nobody knows.
            timeline: The other one.
        """
        is_sure = 0 < self.until_lsn <= at_lsn
        return dataclasses.replace(
            self,
            parts=self.parts if is_sure else tuple(part.unsure() for part in self.parts),
            truncated=tuple(one for one in self.truncated if one.lsn < at_lsn),
            horizon=partitions.blank_horizon(timeline),
            types=self.types if is_sure else "",
        )

    def looked(
        self,
        found: Iterable[Partition],
        horizon: int,
        until_lsn: int = 0,
        *,
        waits: Iterable[SeenPartition] = (),
    ) -> KnownPartitions:
        """Return what is known once the target has all rows of these partitions.

        Args:
            found: All that the catalog shows.
            horizon: The horizon of the look.
            until_lsn: Where the WAL ended behind it.
            waits: Partitions that the catalog may show yet.
        """
        parts = tuple(part_of(partition) for partition in found)
        if self.until_lsn and set(parts) == set(self.parts):
            until_lsn = self.until_lsn
        return dataclasses.replace(
            self, parts=parts, seen=tuple(waits), astray=(), until_lsn=until_lsn, horizon=horizon
        )


def _by_number(types: str) -> dict[int, str]:
    columns = (column.split(":", 1) for column in types.split())
    return {int(number): kind for number, kind in columns}


def part_of(partition: Partition) -> KnownPartition:
    """Return what is remembered of a partition."""
    return KnownPartition(
        links=partition.links, file=partition.file, name=str(partition.table), toast=partition.toast
    )  # fmt: skip


def copied(
    before: KnownPartitions | None, found: Iterable[Partition], horizon: int, at: int, types: str = ""
) -> KnownPartitions:
    """Return what is known once a target has the rows that a snapshot shows.

    Args:
        before: What was known.
        found: The partitions that the snapshot knows.
        horizon: The horizon of the snapshot.
        at: LSN of the snapshot. What the stream told of later partitions still counts.
        types: The types that the columns have there; empty: unknown.
    """
    known = before or KnownPartitions()
    return KnownPartitions(
        parts=tuple(part_of(partition) for partition in found),
        seen=tuple(s for s in known.seen if s.lsn >= at),
        astray=tuple(s for s in known.astray if s.lsn >= at),
        truncated=tuple(t for t in known.truncated if t.lsn >= at),
        since_lsn=at,
        until_lsn=at,
        horizon=horizon,
        types=types,
    )


def parse(texts: Iterable[str]) -> KnownPartitions:
    """Return what the lake remembers; the reverse of `render`."""
    parts, truncated, since_lsn, until_lsn, horizon, types, has_kept = [], [], 0, 0, 0, "", False
    told: dict[str, list[SeenPartition]] = {_SEEN: [], _ASTRAY: []}
    for text in sorted(texts):
        if text.startswith((_SEEN, _ASTRAY)):
            kind, oid, told_at, name = text.split(" ", 3)
            told[f"{kind} "].append(SeenPartition(oid=int(oid), lsn=int(told_at, 16), name=name))
        elif text.startswith(_TRUNCATED):
            xid, told_at = text.removeprefix(_TRUNCATED).split(" ")
            truncated.append(Truncated(xid=int(xid), lsn=int(told_at, 16)))
        elif text.startswith(_SINCE):
            since_lsn = int(text.removeprefix(_SINCE), 16)
        elif text.startswith(_UNTIL):
            until_lsn = int(text.removeprefix(_UNTIL), 16)
        elif text.startswith(_HORIZON):
            horizon = int(text.removeprefix(_HORIZON))
        elif text.startswith(_TYPES):
            types = text.removeprefix(_TYPES)
        elif text == _KEPT:
            has_kept = True
        else:
            parts.append(_parsed(text))
    return KnownPartitions(
        parts=tuple(parts),
        seen=tuple(told[_SEEN]),
        astray=tuple(told[_ASTRAY]),
        truncated=tuple(sorted(truncated, key=lambda one: one.lsn)),
        since_lsn=since_lsn,
        until_lsn=until_lsn,
        horizon=horizon,
        types=types,
        has_kept=has_kept,
    )


def _parsed(text: str) -> KnownPartition:
    links, _, rest = text.partition(" =")
    files, _, name = rest.partition(" ")
    file, _, toast = files.partition("/")
    return KnownPartition(links=links, file=int(file) if file else None, name=name, toast=int(toast or 0))


def _rendered(part: KnownPartition) -> str:
    if part.file is None:
        return part.links
    return f"{part.links} ={part.file}{f'/{part.toast}' if part.toast else ''} {part.name}"


def render(known: KnownPartitions) -> frozenset[str]:
    """Return what the lake is to remember."""
    texts = [_rendered(part) for part in known.parts]
    texts += [f"{_SEEN}{seen.oid} {seen.lsn:X} {seen.name}" for seen in known.seen]
    texts += [f"{_ASTRAY}{seen.oid} {seen.lsn:X} {seen.name}" for seen in known.astray]
    texts += [f"{_TRUNCATED}{one.xid} {one.lsn:X}" for one in known.truncated]
    texts += [f"{_SINCE}{known.since_lsn:X}"] if known.since_lsn else []
    texts += [f"{_UNTIL}{known.until_lsn:X}"] if known.until_lsn else []
    texts += [f"{_HORIZON}{known.horizon}"] if known.horizon else []
    texts += [f"{_TYPES}{known.types}"] if known.types else []
    return frozenset([*texts, *([_KEPT] if known.has_kept else [])])


def is_same(one: KnownPartitions, other: KnownPartitions) -> bool:
    """Whether two say the same; a younger horizon alone, on the same timeline, is not worth a commit."""
    texts = [
        render(dataclasses.replace(known, horizon=partitions.blank_horizon(known.timeline))) for known in (one, other)
    ]
    return texts[0] == texts[1]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """What became of a table's partitions that the stream does not carry: their names, for messages."""

    attached: tuple[str, ...] = ()  #: with rows in them
    emptied: tuple[str, ...] = ()  #: by a TRUNCATE, as far as anybody can tell
    unlogged: tuple[str, ...] = ()  #: for a while, as far as anybody can tell; of clones and histories `emptied`
    gone: tuple[str, ...] = ()  #: detached or dropped
    astray: tuple[str, ...] = ()  #: published under their own names for a while

    def __bool__(self) -> bool:
        return bool(self.attached or self.emptied or self.unlogged or self.gone or self.astray)

    @override
    def __str__(self) -> str:
        done = {
            "attached with rows in it": self.attached, "truncated or rewritten": self.emptied,
            "written anew, maybe after a load without WAL (SET UNLOGGED)": self.unlogged,
            "detached or dropped": self.gone, "published under its own name for a while": self.astray,
        }  # fmt: skip
        return "; ".join(f"partition {', '.join(names)} was {what}" for what, names in done.items() if names)


def compare(
    known: KnownPartitions,
    found: Sequence[Partition],
    *,
    is_filled: Callable[[Partition], bool],
    has_stayed: Callable[[Partition], bool],
    was_unlogged: Callable[[Partition], bool] = lambda _: False,
    waits: Iterable[SeenPartition] = (),
) -> PartitionChange:
    """Return what happened since.

    Args:
        known: What is remembered.
        found: What the catalog shows now.
        is_filled: Whether a partition has rows from before it was attached.
        has_stayed: Whether a partition that has another file has lost no row by that, but by the stream.
        was_unlogged: Whether one that has not may have rows that no stream has, where that makes a difference.
        waits: Partitions that the catalog may show yet.
    """
    before = {part.links: part for part in known.parts}
    earlier = {part.oid for part in known.parts if part.is_sure}
    attached, emptied = [], []
    for partition in found:
        part = before.get(partition.links)
        if part is not None:
            if part.file not in {None, partition.file} and not has_stayed(partition):
                emptied.append(partition)
        elif is_filled(partition):
            attached.append(partition)
        elif partition.oid in earlier or (partition.file != partition.oid and not has_stayed(partition)):
            # Hung elsewhere in between, or given another file since it was made: it may have had rows of the stream.
            emptied.append(partition)
    now, waiting = {partition.oid for partition in found}, {seen.oid for seen in waits}
    gone = [part.label for part in known.parts if part.oid not in now]
    gone += [seen.name for seen in known.seen if seen.oid not in now | waiting]
    unlogged = [partition for partition in emptied if was_unlogged(partition)]
    emptied = [partition for partition in emptied if partition not in unlogged]
    names = [tuple(str(partition.table) for partition in these) for these in (attached, emptied, unlogged)]
    astray = tuple(seen.name for seen in known.astray)
    return PartitionChange(
        attached=names[0], emptied=names[1], unlogged=names[2], gone=tuple(gone), astray=astray
    )  # fmt: skip


def is_keeping(spec: SourceTableSpec) -> bool:
    """Whether the rows of partitions that are gone stay in the target of a map entry."""
    return spec.config.removed_partitions is PartitionRemoved.KEEP


def is_urgent(spec: SourceTableSpec, known: KnownPartitions) -> bool:
    """Whether a target may be compared without need; else nobody is asked before the stream has been heard out.

    A history would have times of the comparison, in the place of those of what the stream is yet to bring.
    """
    return spec.config.type is TableType.CLONE and not known.has_kept


def needs_comparison(
    source: str, spec: SourceTableSpec, known: KnownPartitions, change: PartitionChange, *, is_accepted: bool
) -> bool:
    """Return whether a target has to be compared with its source, or has a gap; else it stays as it is.

    Args:
        source: Its name.
        spec: What the map says of the table.
        known: What was known before the change.
        change: What became of the partitions.
        is_accepted: A person said that the target may go on as it is.

    Raises:
        TableError: A person has to say what is to be done.
    """
    place, target = f"{place_of(source, spec.table)}: {change}", spec.identifier
    resync = resync_of(target)
    if change.unlogged:
        return True
    if spec.config.type is TableType.CHANGELOG and change.emptied and not is_accepted:
        hint = f"{retry_of(target)} goes on without a row that says so; to have one, map the partitions"
        raise ChangesLost(f"{place}, which the stream does not carry", hint=f"{hint} by `partitions_regex`")
    if not spec.config.type.is_comparable:
        if change.attached or change.astray:
            raise TableError(f"{place}, which the stream does not carry", hint=f"copy the table again: {resync}")
        return False
    if not is_keeping(spec):
        return bool(change) or known.has_kept  # the map says so no more
    if not change.attached and not change.emptied and not change.astray:
        return False
    if known.has_kept or change.gone:
        message = f"{place}; a comparison with the source would delete the rows of partitions that are gone, and the"
        hint = f"{resync} copies the table again, without the rows of partitions that are gone"
        raise TableError(f"{message} map says `partition_removed: keep`", hint=hint)
    return True


__all__ = [
    "KnownPartition",
    "KnownPartitions",
    "PartitionChange",
    "SeenPartition",
    "compare",
    "copied",
    "is_keeping",
    "is_same",
    "is_urgent",
    "needs_comparison",
    "parse",
    "render",
]
