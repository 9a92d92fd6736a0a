"""What kuvasz remembers outside the lake, and what its keeper owes: the port of a state folder, or of another store.

All of it is small, and may be lost without a wrong row in the lake: each part says what is lost with it. It outlives
the process, and what counts only if the machine did not lose power meanwhile says so, too.

What is kept of a source is written by whoever reads that source, what is kept of a table by whoever holds the table;
a person's wish is written by a verb while nobody runs. So nobody has to read again what another one may have written
since. A store that several processes share refuses those who have lost a source or table. What cannot be kept is told
in the log and ends nothing, but for a person's wish, which is refused with `StateError`. Calls block, so a store over
a network is to answer within milliseconds, or from what it has at hand.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias

from kuvasz import lsn
from kuvasz.model import Applied, SourcePosition
from kuvasz.state.numbers.numbers_of_kind import EntryName, NumbersOfKind
from kuvasz.state.verdicts.verdict import Verdict

#: A table and the source whose rows are meant: (target, source).
TableKey: TypeAlias = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What is noted of one table of one source; the times are unix seconds."""

    paused_at: float | None = None
    is_resync_due: bool = False  #: it is to be copied again, and its position may not be gone from the lake yet
    is_repair: bool = False  #: what differs is to be copied, not all of it
    failed_at: float | None = None  #: of the first of a row of errors
    message: str = ""
    hint: str | None = None


class NoteStore(Protocol):
    """What must be known of tables after a restart and stands nowhere else. The caller has a lock of his own.

    Without it paused tables follow again, and errors are new.
    """

    def all(self) -> dict[TableKey, Note]:
        """Return all notes.

        Raises:
            StateError: They cannot be read.
        """

    def put(self, notes: Mapping[TableKey, Note]) -> None:
        """Keep notes in place of what was kept of the same tables, all of them or none; `Note()` forgets a table.

        They are durable when this returns.

        Raises:
            StateError: They cannot be written.
        """


class FormerPosition(NamedTuple):
    """A position that a table has dropped, as far as it tells one that comes back from a new one: that is greater."""

    history: int  #: as `SourcePosition.history`
    lsn: int

    def below(self, position: SourcePosition) -> FormerPosition:
        """Return the former position, or what lies just below a new one if that is not greater."""
        return min(self, FormerPosition(position.history, position.lsn - 1))


class Witness(Protocol):
    """The positions of all lake tables as they were once, by which a lake that was set back is seen. From any thread.

    A note may be lost, and then says less: what counts is that the lake was once as far as it says. So what cannot be
    noted raises nothing.
    """

    def known(self, table: str) -> Mapping[str, int]:
        """Return source -> LSN that the source once had as its position in a table.

        Raises:
            StateError: It cannot be read now: nobody knows whether the lake was set back.
        """

    def note(self, table: str, positions: Mapping[str, int]) -> None:
        """Note positions that a table has now; those of other sources stay."""

    def drop(self, table: str, source: str) -> None:
        """Forget a source's position, before the table does."""

    def give_up(self, table: str, source: str, position: SourcePosition) -> None:
        """Note that a table has dropped a source's position, until the next one is noted: it must not come back.

        Of several the greatest counts.
        """

    def expect(self, table: str, source: str, position: SourcePosition) -> None:
        """Note a position that a table is about to get: it is none of those that were given up, if below one.

        A standby that took over may lack the place of that one, so that a new copy is of an earlier place.
        """

    def given_up(self, table: str) -> Mapping[str, FormerPosition]:
        """Return source -> the greatest position that `give_up` was told.

        Raises:
            StateError: As `known`.
        """

    def let_go(self, table: str) -> None:
        """Take note that another process may note something of a table from now on."""


_NEVER: Final = FormerPosition(-1, 0)


@dataclasses.dataclass(slots=True, eq=False)
class TableWitness:
    """What is noted of one table, by source; what changes it says whether anything changed."""

    positions: dict[str, int] = dataclasses.field(default_factory=dict)
    given_up: dict[str, FormerPosition] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the witness from its JSON.

        Raises:
            ValueError: The JSON is another one's; so for KeyError, TypeError and AttributeError.
        """
        return cls(
            {source: lsn.parse(text) for source, text in found["positions"].items()},
            {source: FormerPosition(int(history), lsn.parse(text))
             for source, (history, text) in found.get("given_up", {}).items()},
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of it."""
        return {
            "positions": {source: lsn.render(position) for source, position in self.positions.items()},
            "given_up": {source: (given.history, lsn.render(given.lsn)) for source, given in self.given_up.items()},
        }

    def note(self, positions: Mapping[str, int]) -> bool:
        """See `Witness.note`."""
        is_new = any(self.positions.get(source) != position for source, position in positions.items())
        if not is_new and self.given_up.keys().isdisjoint(positions):
            return False
        self.positions.update(positions)
        self.given_up = {source: given for source, given in self.given_up.items() if source not in positions}
        return True

    def drop(self, source: str) -> bool:
        """See `Witness.drop`."""
        return self.positions.pop(source, None) is not None

    def give_up(self, source: str, position: SourcePosition) -> bool:
        """See `Witness.give_up`."""
        given = FormerPosition(position.history, position.lsn)
        if self.given_up.get(source, _NEVER) >= given:
            return False
        self.given_up[source] = given
        return True

    def expect(self, source: str, position: SourcePosition) -> bool:
        """See `Witness.expect`."""
        given = self.given_up.get(source)
        if given is None or (below := given.below(position)) == given:
            return False
        self.given_up[source] = below
        return True


class StoredFeeds(Protocol):
    """Which targets each source fed when it was last begun with.

    What was confirmed since was applied, parked or held for these and for no others: a target that is not among them
    has a gap. A feeder is a source or all members of one (`kuvasz.config.names.feeder_of`).
    """

    def known(self) -> Mapping[str, frozenset[str]]:
        """Return feeder -> its targets; of one that is missing nothing is known.

        Raises:
            StateError: They cannot be read now: nobody knows which targets have a gap.
        """

    def sids(self) -> Mapping[str, str | None]:
        """Return source -> the sid that its rows have in the lake; of one that is missing nothing is known.

        Raises:
            StateError: They cannot be read now.
        """

    def keep(self, feeds: Mapping[str, Collection[str]], sids: Mapping[str, str | None] | None = None) -> None:
        """Keep what feeders feed, in place of what was known of them, before anything of them is confirmed.

        It is durable when this returns, or nothing is known any more.

        Args:
            feeds: Feeder -> its targets.
            sids: Source -> its sid, of those that are known.

        Raises:
            StateError: What was known may still be, and be wrong.
        """

    def seen(self) -> Mapping[str, Sequence[tuple[str, bool, int]]]:
        """Return source -> what its patterns were matched with: tables as a map names them, if they have keys, when.

        By the last tables of all sources are in the order in which they came. Of a source that is missing nothing is
        known.

        Raises:
            StateError: They cannot be read now: nobody knows which tables a source has.
        """

    def see(self, tables: Mapping[str, Sequence[tuple[str, bool, int]]]) -> None:
        """Keep what sources have, in place of what was kept of the same: `seen`. It is durable when this returns.

        Without it a source that is down at a start has no tables by patterns until it answers.

        Raises:
            StateError: Other processes would go by what was kept before.
        """

    def turn(self) -> AbstractContextManager[bool]:
        """Have nobody else keep what sources have while the body runs; it is told whether others may have before.

        Raises:
            StateError: Somebody else does so now, or nobody knows.
        """
        return contextlib.nullcontext(enter_result=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """The file of a table (its relfilenode) when all of its rows were known to have come by the stream.

    Versions before knew neither TOAST tables nor what names a table, and kept no file of a named one.
    """

    file: int
    horizon: int  #: each transaction below was over then; above 48 bits its timeline
    toast: int = 0  #: OID of its TOAST table; 0: none, or unknown
    named: tuple[int, ...] = ()  #: OIDs of the entries by which publications named it at the last look
    truncated: tuple[int, ...] = ()  #: transactions whose TRUNCATE of it the stream brought since

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the file from its JSON, which are its fields.

        Raises:
            ValueError: The JSON is another one's; so for KeyError, TypeError and AttributeError.
        """
        return cls(
            file=int(found["file"]),
            horizon=int(found["horizon"]),
            toast=int(found.get("toast", 0)),
            named=tuple(map(int, found.get("named", ()))),
            truncated=tuple(map(int, found["truncated"])),
        )


class StoredFiles(Protocol):
    """The files of one source's tables, which may be written without WAL while they are published.

    Without it a table is believed to have come by the stream so far.
    """

    def all(self) -> Mapping[int, KnownFile]:
        """Return what is known, by the tables' OIDs.

        Raises:
            StateError: They cannot be read now: nobody knows whether a table has come by the stream.
        """

    def put(self, files: Mapping[int, KnownFile]) -> None:
        """Keep the files of tables, in place of what was known of the same tables.

        Raises:
            StateError: As `all`.
        """


NONE = Applied(0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """How far kuvasz and a source are with each other."""

    system_id: str = ""  #: of the cluster; empty: unknown
    timeline: int = 0  #: 0: unknown
    history: int = 0  #: as `SourcePosition.history`
    confirmed_lsn: int = 0  #: told to the server, or about to be; 0: unknown
    started_us: int = 0  #: when the server was started that was compared last, µs since 1970 UTC; 0: unknown
    proved_lsn: int = 0  #: up to which that server is known to have what the lake has, by its timeline
    witness: Applied = NONE  #: has to come again, for it proves that the server has what was copied
    looked_lsn: int = 0  #: up to which each table that streams is known to have missed nothing; 0: unknown
    is_staged: bool = False  #: what was confirmed is what is staged, and not what is in the lake
    rest_xid: int = 0  #: the next transaction when the server was seen at rest, with all of it in the lake; 0: never

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the record from its JSON.

        Raises:
            ValueError: The JSON is another one's; so for KeyError and TypeError.
        """
        return cls(
            system_id=found["system_id"], timeline=int(found["timeline"]), history=int(found.get("history", 0)),
            confirmed_lsn=lsn.parse(found["confirmed"]), started_us=int(found.get("started_us", 0)),
            proved_lsn=lsn.parse(found.get("proved", "0/0")), witness=Applied(*map(int, found.get("witness", NONE))),
            looked_lsn=lsn.parse(found.get("looked", "0/0")), is_staged=bool(found.get("is_staged", False)),
            rest_xid=int(found.get("rest_xid", 0)),
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Return the JSON of it."""
        return {
            "system_id": self.system_id, "timeline": self.timeline, "history": self.history,
            "confirmed": lsn.render(self.confirmed_lsn), "started_us": self.started_us,
            "proved": lsn.render(self.proved_lsn), "witness": list(self.witness),
            "looked": lsn.render(self.looked_lsn), "is_staged": self.is_staged,
            "rest_xid": self.rest_xid,
        }  # fmt: skip


class StoredRecord(Protocol):
    """The record of one source, for who reads that source. On the event loop nothing may wait for who keeps it.

    The confirmed LSN that the next process finds is never below what the source was told; where that is not sure, as
    after a machine lost power, it is 0. What cannot be kept raises nothing: the stream is worth more than the record.
    """

    #: as it is now; `StateError` where it was never read and cannot be: nobody knows whether the source goes on
    standing: SourceRecord

    @property
    def place(self) -> str:
        """Where it is, for people."""

    def update(self, standing: SourceRecord) -> None:
        """Take a standing over: another process would find it from now on. Blocks."""

    def update_soon(self, standing: SourceRecord) -> None:
        """Take a standing over; another process would find it in a moment, or one that came later. On the loop."""
        self.update(standing)

    @property
    def is_settled(self) -> bool:
        """Whether another process would find what was taken over."""
        return True

    def settle(self) -> None:
        """Wait until another process would find what was taken over, if that can be kept now. Blocks."""
        return

    def confirming(self, confirmed_lsn: int) -> None:
        """Note an LSN that is about to be confirmed; one that lies before the last says nothing. On the loop."""
        if confirmed_lsn > self.standing.confirmed_lsn:
            self.update(dataclasses.replace(self.standing, confirmed_lsn=confirmed_lsn))

    def close(self) -> None:
        """Make it durable: it then counts even after the machine lost power."""


class Ownership(Protocol):
    """The right to read and change a store: from `take` to `give_back` or the process's end, or as a context.

    Who drops this object owns the store all the same.
    """

    def take(self) -> None:
        """Own the store; nothing happens if this object does so already. An owner that is about to end is waited for.

        Raises:
            StateTaken: Somebody else owns it.
            StateError: The store cannot be written.
        """

    def give_back(self) -> None:
        """Own the store no longer."""

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A process of a cluster, as all of them see it."""

    name: str
    host: str
    pid: int
    version: str  #: of kuvasz
    map_digest: str  #: of its map: alike for maps that say the same
    since: float  #: unix seconds of its start
    silent_s: float  #: seconds since it was heard of
    is_holder: bool  #: it does what its role is, and others stand by
    role: str = "all"  #: as `cluster.role`
    sources: int | None = None  #: of one that reads: how many it holds; None: of another one
    targets: int | None = None  #: the same of one that applies
    is_draining: bool = False  #: it gives away what it holds, and takes nothing


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """Who holds the lease of a cluster, or held it last."""

    node: str
    does: str
    map_digest: str
    since: str  #: ISO 8601
    is_late: bool  #: its lease has ended, and nobody has taken it yet


class ClusterMember(Protocol):
    """This process among those of its cluster: all of them have joined, and one holds the lease.

    A holder that could not ask for more time is told before its lease ends.
    """

    @property
    def node(self) -> str:
        """This process's name."""

    @property
    def was_killed(self) -> bool:
        """Whether the lease was taken from another process that left without a word."""

    def join(self) -> None:
        """Own this process's own state folder, and be seen by the others.

        Raises:
            StateTaken: Another process of this machine has that folder.
            StateError: The folder cannot be written, or the coordinator does not answer.
            ConfigError: The coordinator is a newer kuvasz's.
        """

    def take(self, does: str, map_digest: str) -> LeaseHolder | None:
        """Take the lease, if it is free; return who holds it if not.

        Args:
            does: What for, for the others.
            map_digest: What tells this process's map from others.

        Raises:
            StateError: The coordinator does not answer.
        """

    def has_map(self, map_digest: str) -> None:
        """Let the others know that this process has another map by now."""

    def holder(self) -> LeaseHolder | None:
        """Return who holds the lease, or left it without a word; None: nobody.

        Raises:
            StateError: The coordinator does not answer.
        """

    def look(self) -> str:
        """Say what the coordinator is like, in words; nothing is made there. Without having joined as well.

        Raises:
            StateError: The coordinator does not answer, or its role may not make the tables.
            ConfigError: The coordinator is a newer kuvasz's.
        """

    def nodes(self) -> list[ClusterNode]:
        """Return the processes that are there, or were not long ago; without having joined as well.

        Raises:
            StateError: The coordinator does not answer.
        """

    def drain(self, node: str, *, drains: bool) -> bool:
        """Have a node give away what it holds, or have its share again; return whether there is such a node.

        Raises:
            StateError: The coordinator does not answer.
        """

    def forget(self, node: str) -> bool:
        """Forget a node that is gone for good: what it held is anybody's, whichever map that was held by.

        Returns:
            Whether anything was known of it.

        Raises:
            ConfigError: It was heard of in time.
            StateError: The coordinator does not answer.
        """

    def leave(self) -> None:
        """Give the lease and the state folder back. Nothing raises: a lease ends by itself."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where a running kuvasz answers."""

    url: str
    token: str = dataclasses.field(repr=False)  #: lets whoever has it steer kuvasz
    #: who answers, of several that share the map; empty: one has all of it
    node: str = dataclasses.field(default="", compare=False)


class StoredAddress(Protocol):
    """The address of the running kuvasz, for verbs of the same user: nobody else may read it.

    Without it they go by the map, and can only look.
    """

    @property
    def place(self) -> str:
        """Where it is, for people."""

    def find(self) -> ServerAddress | None:
        """Return the address of a kuvasz that runs, or ended without a word; None if there is none to be read."""

    def all(self) -> Sequence[ServerAddress]:
        """Return the addresses of all that apply: several, where they share the map; one without a url has none.

        Raises:
            StateError: Nobody knows now who applies.
        """

    def leave(self, address: ServerAddress) -> None:
        """Keep an address in place of what was left before.

        Raises:
            ConfigError: It cannot be kept.
        """

    def remove(self, address: ServerAddress) -> None:
        """Forget an address, unless another one was left meanwhile."""


class StoredNumbers(Protocol):
    """The numbers by which the management API calls entries of the map, kind by kind. From any thread.

    A number is never given to another entry, also not when its own is gone: that may come back. Without this store
    entries get other numbers, and clients that kept some mean others.
    """

    def given(self, kind: str, names: Sequence[EntryName]) -> Mapping[EntryName, int]:
        """Return the number of each name; names without one get the next ones, in their order.

        They are durable when this returns.

        Raises:
            StateError: They cannot be read, or not be written.
        """

    def all(self) -> Mapping[str, NumbersOfKind]:
        """Return the numbers of each kind of which there are some.

        Raises:
            StateError: They cannot be read.
        """

    def bring(self, kinds: Mapping[str, NumbersOfKind]) -> None:
        """Take the numbers of kinds over from another store, in place of what was kept of them.

        Raises:
            StateError: They cannot be written.
        """

    def announce(self, kind: str, before: EntryName, after: EntryName) -> None:
        """Have an entry keep its number should it come by another name; by its own: it does no more.

        Raises:
            StateError: They cannot be read, or not be written.
        """

    def rename(self, kind: str, before: EntryName, after: EntryName) -> None:
        """Have an entry keep its number under another name; what had that name before has none any more.

        Raises:
            StateError: They cannot be read, or not be written.
        """


class StoredVerdicts(Protocol):
    """The last verdict on each table that was compared with its source. What cannot be kept raises nothing.

    Without it all tables are compared again, as soon as their turn comes, and of none that differs is it known.
    """

    def all(self) -> Mapping[TableKey, Verdict]:
        """Return all that are kept.

        Raises:
            StateError: They cannot be read now: nobody knows what they say.
        """

    def put(self, verdicts: Mapping[TableKey, Verdict | None]) -> None:
        """Keep verdicts in place of what was kept of the same tables; None forgets a table."""


class StoredNotices(Protocol):
    """How far each webhook has been told of the lake.

    Without it a webhook is told of what comes from then on.
    """

    def all(self) -> Mapping[str, Mapping[str, Any]]:
        """Return webhook -> how far it has been told, as JSON.

        Raises:
            StateError: They cannot be read now: nobody knows whether a webhook is new.
        """

    def put(self, name: str, told: Mapping[str, Any]) -> None:
        """Keep how far a webhook has been told; durable when this returns, or the log says why not."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LedgerDocument:
    """What a ledger says of a copy."""

    head: Mapping[str, Any]  #: what it was begun as
    parts: Mapping[int, str]  #: number of a part that is finished -> what was made of it
    seconds: float  #: that all of it took, without times at which nobody copied


class StoredLedger(Protocol):
    """What is finished of one table's copy. Without it the copy begins again. From any thread."""

    @property
    def is_there(self) -> bool:
        """Whether anything is kept that counts."""

    def read(self) -> LedgerDocument | None:
        """Return what it says; None if nothing is kept that counts."""

    def begin(self, head: Mapping[str, Any], parts: Mapping[int, str], seconds: float = 0.0) -> None:
        """Keep this in place of all that it said. Where that fails nothing is kept.

        Raises:
            StateError: What it said before may still be there.
        """

    def go_on(self) -> None:
        """Take further parts to those that are there."""

    def note(self, number: int, made: str, seconds: float) -> None:
        """Add a part that is finished, after so many seconds; durable when this returns.

        Where that fails no further ones are kept.
        """

    def remove(self) -> None:
        """Forget what it says, for good.

        Raises:
            StateError: It may still be there.
        """


class StateStore(Protocol):
    """The store. Nothing in it is touched before it is asked for."""

    @property
    def place(self) -> str:
        """Where it is, for people."""

    @property
    def is_there(self) -> bool:
        """Whether a kuvasz has ever kept anything in it."""

    @property
    def notes(self) -> NoteStore:
        """What is noted of tables."""

    @property
    def witness(self) -> Witness:
        """The positions of all lake tables as they were once."""

    @property
    def feeds(self) -> StoredFeeds:
        """Which targets each source fed."""

    @property
    def address(self) -> StoredAddress:
        """Where the running kuvasz answers."""

    @property
    def numbers(self) -> StoredNumbers:
        """The numbers of the map's entries."""

    @property
    def verdicts(self) -> StoredVerdicts:
        """What comparisons found."""

    @property
    def notices(self) -> StoredNotices:
        """How far webhooks have been told."""

    def record(self, source: str) -> StoredRecord:
        """Return the record of a source as it was left; an empty one where nothing is known."""

    def files(self, source: str) -> StoredFiles:
        """Return the files of a source's tables."""

    def ledger(self, target: str, source: str) -> StoredLedger | None:  # noqa: ARG002 (of those that keep one)
        """Return the ledger of a table's copy; None: nothing of a copy outlives the process."""
        return None

    def own(self, does: str) -> Ownership:
        """Return the right to the store, which is yet to be taken.

        Args:
            does: What the owner does with it, for whoever finds it taken.
        """


__all__ = [
    "ClusterMember",
    "ClusterNode",
    "FormerPosition",
    "KnownFile",
    "LeaseHolder",
    "LedgerDocument",
    "Note",
    "NoteStore",
    "Ownership",
    "ServerAddress",
    "SourceRecord",
    "StateStore",
    "StoredAddress",
    "StoredFeeds",
    "StoredFiles",
    "StoredLedger",
    "StoredNotices",
    "StoredNumbers",
    "StoredRecord",
    "StoredVerdicts",
    "TableKey",
    "TableWitness",
    "Witness",
]  # fmt: skip
