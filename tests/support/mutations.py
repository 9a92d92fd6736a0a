"""The durable facts by which continuity is proved, and what happens when one of them is never written.

A pytest plugin: with `MUTATION` in the environment the write of that fact does nothing, or of several between commas,
and the tests named beside it have to fail. Run as a module it is kuvasz without them: `tests.support.process` starts
that. `make mutations` tries all of them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kuvasz import cli
from kuvasz.evolve import column_notes
from kuvasz.evolve.known import SourceColumns
from kuvasz.lake.definition.source_rules import SourceRules
from kuvasz.lake.files.files import FileTable
from kuvasz.lake.format import source_positions
from kuvasz.lake.jvm.iceberg_table import IcebergTable
from kuvasz.lake.table import notes, past
from kuvasz.lake.table.notes import REWOUND_PREFIX, Notes
from kuvasz.lake.table.past import Past
from kuvasz.lake.table.source_files import SourceFiles
from kuvasz.model import SourcePosition
from kuvasz.parking.log import ParkingLog
from kuvasz.source.catalog import type_facts
from kuvasz.state.feed_file import FeedFile
from kuvasz.state.note_file import NoteFile
from kuvasz.state.ports import SourceRecord
from kuvasz.state.relation_files import RelationFiles
from kuvasz.state.source_record_file import SourceRecordFile
from kuvasz.state.witness_files import WitnessFiles
from kuvasz.sync.context.gap_starts import GapStarts
from kuvasz.sync.context.slot import Slot
from kuvasz.sync.earlier_maps import EarlierMaps
from kuvasz.sync.rules import rewrites
from kuvasz.sync.rules.targets import Targets
from kuvasz.sync.watch.ancestor_rows import AncestorRows
from kuvasz.sync.watch.last_looks import LastLooks
from kuvasz.sync.watch.member_watch import MemberWatch


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One fact that is not written."""

    forget: Callable[[pytest.MonkeyPatch], None]
    tests: tuple[str, ...]  #: of which each fails without the fact


def nothing(*_: Any, **__: Any) -> None:
    """Write nothing."""


def leaving_out(*facts: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Have positions stored without some of their facts."""
    render = source_positions.render
    defaults = {fact: getattr(SourcePosition(lsn=0), fact) for fact in facts}

    def forget(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(source_positions, "render", lambda p: render(dataclasses.replace(p, **defaults)))

    return forget


def no_gap(patch: pytest.MonkeyPatch) -> None:
    """Have a position forgotten without a gap in its place."""
    drop = Notes.drop_position
    patch.setattr(
        Notes, "drop_position", lambda self, source, **more: drop(self, source, **more | {"to_repair": False})
    )


def no_rewound_note(patch: pytest.MonkeyPatch) -> None:
    """Have nobody know later that a table was set back."""
    store = IcebergTable.set_properties

    def forget(self: IcebergTable, properties: Mapping[str, str], **more: Any) -> None:
        kept = {name: text for name, text in properties.items() if not name.startswith(REWOUND_PREFIX)}
        store(self, kept, **more)

    patch.setattr(IcebergTable, "set_properties", forget)


def record_without(fact: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Have a source's record lack one of its facts."""
    load, default = SourceRecordFile._load, getattr(SourceRecord(), fact)

    def forget(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(SourceRecordFile, "_load", lambda self: dataclasses.replace(load(self), **{fact: default}))

    return forget


def file_without(**facts: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """Have a known file lack some of its facts."""
    known, looked_at = rewrites.known, rewrites.looked_at

    def forget(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(rewrites, "known", lambda now: dataclasses.replace(known(now), **facts))
        patch.setattr(rewrites, "looked_at", lambda before, now: dataclasses.replace(looked_at(before, now), **facts))

    return forget


def never_set_back(patch: pytest.MonkeyPatch) -> None:
    """Have no snapshot tell that a table was set back."""
    for module in (notes, past):
        patch.setattr(module, "is_set_back", lambda _: False)


def no_look_between(patch: pytest.MonkeyPatch) -> None:
    """Have the oldest look at a table's columns stored alone."""
    render = column_notes.render

    def shortened(source: str, known: SourceColumns) -> dict[str, str]:
        return render(source, dataclasses.replace(known, sights=known.sights[:1]))

    patch.setattr(column_notes, "render", shortened)


def no_labels(patch: pytest.MonkeyPatch) -> None:
    """Have values of an enum rest on its labels, whatever they are called."""
    query = type_facts._FACTS.replace(" || ' ' || e.enumlabel", "")
    assert query != type_facts._FACTS
    patch.setattr(type_facts, "_FACTS", query)


CONTINUITY = "tests/integration/test_continuity.py::"
MEMBERS = "tests/integration/test_members.py::"
LOST = "tests/integration/test_slot_lost.py::"
PARKING = "tests/unit/sync/tables/test_parking.py::"
REWOUND = "tests/contract/test_rewound.py::"
CONTRACT = "tests/contract/test_state.py::"
HANDSHAKE = "tests/unit/source/reading/test_handshake.py::"
SLOT = "tests/unit/sync/context/test_slot.py::"
REWRITES = "tests/unit/sync/watch/test_rewrite_watch.py::"

MUTATIONS = {
    "published": Mutation(
        forget=lambda patch: patch.setattr(Notes, "published", nothing),  # the copy's commit writes it, too
        tests=(f"{CONTINUITY}test_a_table_out_of_the_publication_for_a_while_is_made_right",),
    ),
    "published later": Mutation(
        forget=lambda patch: patch.setattr(Notes, "remember_published", nothing),
        tests=("tests/contract/test_lake.py::test_how_a_table_was_published_comes_with_its_copy",),
    ),
    "notes of tables": Mutation(
        forget=lambda patch: patch.setattr(NoteFile, "put", nothing),
        tests=(
            "tests/integration/test_parking.py::test_a_paused_table_whose_parked_changes_are_gone_says_so_at_once",
        ),
    ),
    "unmapped": Mutation(
        forget=lambda patch: patch.setattr(EarlierMaps, "let_go", nothing),
        tests=(f"{CONTINUITY}test_a_table_out_of_the_map_and_back_has_a_gap_that_is_closed_or_told",),
    ),
    "feeds": Mutation(
        forget=lambda patch: patch.setattr(FeedFile, "_write", nothing),
        tests=(f"{CONTINUITY}test_a_target_in_a_namespace_that_the_map_names_no_more_and_then_again",),
    ),
    "files of tables": Mutation(
        forget=lambda patch: patch.setattr(RelationFiles, "_write", nothing),
        tests=(f"{CONTINUITY}test_a_table_that_was_unlogged_between_two_looks_is_made_right",),
    ),
    "TOAST table": Mutation(
        forget=file_without(toast=0), tests=(f"{REWRITES}test_a_table_with_the_same_toast_table_was_not_unlogged",)
    ),
    "names of files": Mutation(
        forget=file_without(named=()),
        tests=(f"{REWRITES}test_a_table_that_is_named_was_not_unlogged_unless_its_name_came_meanwhile",),
    ),
    "horizon of a file": Mutation(
        forget=file_without(horizon=0), tests=(f"{REWRITES}test_the_next_process_knows_the_file",)
    ),
    "always logged": Mutation(
        forget=lambda patch: patch.setattr(rewrites, "was_always_logged", lambda *_: True),
        tests=(f"{REWRITES}test_what_nothing_explains_is_a_gap",),
    ),
    "members": Mutation(
        forget=lambda patch: patch.setattr(MemberWatch, "forget_gone", nothing),
        tests=(f"{MEMBERS}test_the_only_member_is_away_while_kuvasz_runs",),
    ),
    "names of members": Mutation(
        forget=lambda patch: patch.setattr(MemberWatch, "note", nothing),
        tests=(f"{MEMBERS}test_members_come_go_and_are_renamed",),
    ),
    "gap": Mutation(
        forget=no_gap, tests=(f"{CONTINUITY}test_what_a_table_with_a_past_missed_stands_in_it_as_a_gap",)
    ),
    "rule of the rows": Mutation(
        forget=lambda patch: patch.setattr(SourceRules, "noted", nothing),  # the copy's commit writes it, too
        tests=("tests/integration/test_rules.py::test_another_secret_gives_all_rows_other_pseudonyms",),
    ),
    "routes by OID": Mutation(
        forget=lambda patch: patch.setattr(Targets, "bind", nothing),
        tests=(f"{CONTINUITY}test_a_table_renamed_while_it_streams_is_followed",),
    ),
    "partitions": Mutation(
        forget=lambda patch: patch.setattr(Notes, "remember_partitions", nothing),
        tests=("tests/integration/test_partitions.py::test_what_becomes_of_partitions_reaches_the_lake",),
    ),
    "parked": Mutation(
        forget=lambda patch: patch.setattr(Notes, "park", nothing),
        tests=("tests/integration/test_parking.py",),
    ),
    "witness in the state folder": Mutation(
        forget=lambda patch: patch.setattr(WitnessFiles, "note", nothing),
        tests=(f"{REWOUND}test_the_next_start_finds_it",),
    ),
    "positions given up": Mutation(
        forget=lambda patch: patch.setattr(WitnessFiles, "give_up", nothing),
        tests=(f"{REWOUND}test_a_position_that_was_dropped_does_not_come_back",),
    ),
    "why a table is rewound": Mutation(
        forget=no_rewound_note, tests=(f"{REWOUND}test_a_position_that_was_dropped_does_not_come_back",)
    ),
    "finished logs": Mutation(
        forget=lambda patch: patch.setattr(ParkingLog, "finish", nothing),
        tests=(f"{PARKING}test_a_log_that_is_finished_may_be_left_behind",),
    ),
    "snapshot of a position": Mutation(
        forget=lambda patch: patch.setattr(Past, "check", nothing),
        tests=(f"{REWOUND}test_a_table_that_was_set_back_stops_until_it_is_copied",),
    ),
    "anchor": Mutation(
        forget=never_set_back,
        tests=("tests/unit/lake/table/test_past.py::test_an_older_snapshot_is_seen_by_its_anchor",),
    ),
    "position of the rows": Mutation(
        forget=lambda patch: patch.setattr(Notes, "_shown", lambda _, __, known: known),
        tests=(
            "tests/unit/lake/table/test_notes.py::test_the_gap_of_a_table_that_was_set_back_begins_behind_its_rows",
        ),
    ),
    "record of a source": Mutation(
        forget=lambda patch: patch.setattr(SourceRecordFile, "_write", nothing),
        tests=(f"{LOST}test_a_slot_advanced_behind_our_back",),
    ),
    "confirmed LSN": Mutation(
        forget=record_without("confirmed_lsn"), tests=(f"{LOST}test_a_slot_advanced_behind_our_back",)
    ),
    "proved LSN": Mutation(
        forget=record_without("proved_lsn"),
        tests=(f"{HANDSHAKE}test_a_copy_of_the_old_primary_stays_proved_for_the_next_process",),
    ),
    "looked LSN": Mutation(
        forget=record_without("looked_lsn"),
        tests=(f"{CONTRACT}test_a_killed_process_leaves_what_it_was_about_to_confirm",),
    ),
    "witness of a source": Mutation(
        forget=record_without("witness"),
        tests=(f"{CONTRACT}test_a_killed_process_leaves_what_it_was_about_to_confirm",),
    ),
    "end of a timeline": Mutation(
        forget=lambda patch: patch.setattr(GapStarts, "fall_back", nothing),
        tests=(f"{SLOT}test_after_a_failover_no_look_counts_beyond_what_the_lake_has",),
    ),
    "looks at an old primary": Mutation(
        forget=lambda patch: patch.setattr(LastLooks, "distrust", nothing),
        tests=("tests/unit/sync/test_stream.py::test_what_was_seen_of_an_old_primary_proves_nothing",),
    ),
    "start of a server": Mutation(
        forget=leaving_out("started_us"),
        tests=(f"{LOST}test_an_older_backup_that_has_grown_beyond_a_copy[it is lost]",),
    ),
    "copy of a started server": Mutation(
        forget=lambda patch: patch.setattr(Slot, "copied", lambda *_, **__: []),
        tests=(f"{LOST}test_an_older_backup_that_has_grown_beyond_a_copy",),
    ),
    "number of a past": Mutation(
        forget=leaving_out("history"),
        tests=(f"{LOST}test_a_source_restored_while_it_streams_is_copied_once",),
    ),
    "system id": Mutation(
        forget=leaving_out("system_id"),
        tests=(f"{LOST}test_another_cluster_behind_a_known_sid_changes_nothing",),
    ),
    "last transaction": Mutation(
        forget=leaving_out("commit_lsn", "xid", "commit_us"),
        tests=(f"{LOST}test_an_older_backup_that_has_grown_beyond_what_the_lake_has",),
    ),
    "rows as an ancestor's": Mutation(
        forget=lambda patch: patch.setattr(AncestorRows, "missed", nothing),
        tests=(f"{CONTINUITY}test_a_table_whose_changes_came_as_an_ancestors_is_made_right",),
    ),
    "looks at columns": Mutation(
        forget=no_look_between, tests=("tests/unit/evolve/test_known.py::test_what_is_remembered_comes_back",)
    ),
    "labels of enums": Mutation(
        forget=no_labels, tests=("tests/integration/test_introspect.py::test_what_a_type_rests_on_is_known",)
    ),
    "files of several sources": Mutation(
        forget=lambda patch: patch.setattr(SourceFiles, "shared", lambda *_: []),
        tests=(
            "tests/unit/lake/table/test_source_files.py"
            "::test_a_truncate_takes_the_rows_of_its_source_out_of_shared_files",
        ),
    ),
    "file numbers": Mutation(
        forget=lambda patch: patch.setattr(FileTable, "numbers", lambda _: {}),
        tests=("tests/contract/test_open_transactions.py",),
    ),
}


#: What a mishap of `tests.support.mishaps` ends well with: without it exactly that one ends otherwise.
MISHAPS = {
    "set back in the lake": "witness in the state folder",
    "added, dropped and renamed over two looks": "looks at columns",
    "a value of an enum renamed": "labels of enums",
}


def pytest_configure() -> None:
    """Have the facts of `MUTATION` not written in this process."""
    for name in filter(None, os.environ.get("MUTATION", "").split(",")):
        MUTATIONS[name].forget(pytest.MonkeyPatch())


if __name__ == "__main__":
    pytest_configure()
    cli.main()
