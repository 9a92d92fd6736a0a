"""What one source's life is made of, put together in an order in which each part is handed what exists.

What one part wants of another that comes later goes through what all of them have (`SourceContext`): `requests` for
tables that are to be looked at anew, `troubles` for those that cannot follow, `current` for what reads the stream.
"""

from __future__ import annotations

import dataclasses

from kuvasz.state.ports import StoredRecord
from kuvasz.sync.commands import Commands
from kuvasz.sync.context.publications import Publications
from kuvasz.sync.context.slot import Slot
from kuvasz.sync.context.source_context import SourceContext
from kuvasz.sync.rejoin import Rejoin
from kuvasz.sync.source_setup import SourceSetup
from kuvasz.sync.stream import Stream
from kuvasz.sync.tables.approach import Approach
from kuvasz.sync.tables.copies import Copies
from kuvasz.sync.tables.parking import Parking
from kuvasz.sync.tables.preparation import Preparation
from kuvasz.sync.tables.recopy import PositionReset
from kuvasz.sync.tables.replays import Replays
from kuvasz.sync.tables.source_logs import SourceLogs
from kuvasz.sync.tables.source_upgrade import SourceUpgrade
from kuvasz.sync.watch.ancestor_rows import AncestorRows
from kuvasz.sync.watch.large_rows import LargeRows
from kuvasz.sync.watch.last_looks import LastLooks
from kuvasz.sync.watch.member_watch import MemberWatch
from kuvasz.sync.watch.partition_messages import PartitionMessages
from kuvasz.sync.watch.partition_notes import PartitionNotes
from kuvasz.sync.watch.partition_watch import PartitionWatch
from kuvasz.sync.watch.patrol import Patrol
from kuvasz.sync.watch.rewrite_watch import RewriteWatch
from kuvasz.sync.watch.schema_watch import SchemaWatch
from kuvasz.sync.watches import Watches


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that `SourceSync` itself begins and ends."""

    record: StoredRecord
    commands: Commands
    logs: SourceLogs
    resets: PositionReset
    slot: Slot
    setup: SourceSetup
    copies: Copies
    stream: Stream
    parking: Parking
    replays: Replays
    rejoin: Rejoin
    watches: Watches
    upgrade: SourceUpgrade

    @classmethod
    def of(cls, context: SourceContext) -> Parts:
        """Return the parts of a source that begins."""
        approvals, record = context.approvals, context.shared.state.record(context.source.name)
        looks = LastLooks(context.source_tables, context.targets_of)
        notes, members = PartitionNotes(context), MemberWatch(context)
        context.pasts.whenever_given_up(lambda _: looks.distrust())
        watch = SchemaWatch(context, looks, approvals)
        rewrites = RewriteWatch(context)
        messages = PartitionMessages(context.source_tables, notes, watch, rewrites, context.troubles)
        row_limit = LargeRows(context, looks).limit
        logs = SourceLogs(context, record)
        resets = PositionReset(context, drop_parked=logs.drop)
        parking = Parking(context, logs, resets)
        slot = Slot(context, record, parked_lsn=logs.last_lsn)
        publications = Publications(context, forget=resets.forget, begin=rewrites.begin)
        partitions = PartitionWatch(context, members, messages, notes, approvals, forget=resets.forget)
        preparation = Preparation(context, approvals, members, logs, resets)
        setup = SourceSetup(context, preparation, looks, members, partitions, publications, slot, resets)
        ancestor_rows = AncestorRows(looks, context.troubles)
        stream = Stream(context, logs, slot, record, messages, ancestor_rows, row_limit, preparation)
        approach = Approach(context, activate=stream.activate, is_parked=stream.is_parked)
        copies = Copies(
            context, slot, looks, approvals, notes, approach, look=setup.look, published=publications.seen
        )  # fmt: skip
        replays = Replays(
            context, logs, parking, number=watch.follow, row_limit=row_limit, activate=stream.activate
        )  # fmt: skip
        upgrade = SourceUpgrade(context, record)
        return cls(
            record=record, commands=Commands(context, approvals), logs=logs, resets=resets, slot=slot, setup=setup,
            copies=copies, stream=stream, parking=parking, replays=replays,
            rejoin=Rejoin(context, preparation, setup, copies, parking, stream, replays, approach),
            watches=Watches(
                context, Patrol(context, looks, watch, rewrites), partitions, publications, preparation, slot,
                upgrade, parking.moving,
            ),
            upgrade=upgrade,
        )  # fmt: skip


__all__ = ["Parts"]
