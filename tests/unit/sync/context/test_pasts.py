"""Whoever remembers something of a source in memory is told when its past is given up, or says why it need not be."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from kuvasz import sync
from kuvasz.sync.context.pasts import Pasts
from kuvasz.sync.parts import Parts
from tests.support.scene import Scene

#: Who forgets: the suspects and the stale stream by way of their watch.
FORGETS = {"GapStarts", "LastLooks", "PartitionSuspects", "PartitionWatch", "RewriteWatch", "StaleStream"}

#: Who remembers what is no LSN, transaction or file of a source, or asks for a comparison by it and spares none.
KEEPS = {
    "Approach": "tables that are being compared: a comparison of another past is of another snapshot",
    "Approvals": "what a person agreed to",
    "CaveatLog": "what was said",
    "CatchingUp": "how far a caller wants to wait",
    "CopySnapshot": "tables as one snapshot shows them, which ends with it: a copy of another past is of another one",
    "TableLedger": "parts of one copy; those of a server that went on from an earlier place are not taken up",
    "EarlierMaps": "which targets the map defines otherwise than they are loaded",
    "FirstCopies": "tables that wait under one snapshot, which ends with it",
    "Beside": "tasks that are at something",
    "Lifetime": "threads that are at something",
    "MemberWatch": "which tables there are, asked anew at each look",
    "Parking": "times of this machine",
    "PartitionMessages": "which OIDs are partitions, asked anew at each look: what is told of others asks for a look",
    "PartitionNotes": "which OIDs the lake knows, as it was stored last; what is settled goes with the stale stream",
    "Namesakes": "which tables have which sid now",
    "PatternTables": "names of tables, asked anew at each look",
    "Preparation": "which tables cannot follow, asked anew at each start",
    "Publications": "by which rows tables are published, asked anew at each start",
    "Rejoin": "tables that are due",
    "Requests": "tables that are due",
    "ErrandClock": "times of this machine",
    "SourceLogs": "logs that are lost, which the lake has the positions of",
    "SourceRoutes": "which OIDs go to which targets, bound anew at each start",
    "SourceTables": "names of tables, asked anew at each start",
    "Sources": "errors",
    "Targets": "whose rows those of a sid are, asked anew at each start",
    "Troubles": "what was said",
    "WaitingLine": "what waits for whoever has it",
}


def test_all_are_told_up_to_where_the_past_stays() -> None:
    pasts, told = Pasts(), list[int]()
    pasts.give_up(1000)
    pasts.whenever_given_up(told.append)
    pasts.whenever_given_up(lambda to_lsn: told.append(-to_lsn))
    pasts.give_up(2000)
    assert told == [2000, -2000]


#: What a class begins with that fills it as it goes.
MEMORIES = {"set", "dict", "list", "defaultdict", "deque", "FewKeys"}


def memories() -> Iterator[str]:
    """Yield the classes that begin with an empty dictionary, set or list, which they fill as they go."""
    for path in Path(inspect.getfile(sync)).parent.rglob("*.py"):
        for found in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(found, ast.ClassDef) and not found.name.startswith("_") and remembers(found):
                yield found.name


def remembers(of: ast.ClassDef) -> bool:
    made = [part for part in of.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
    set_to = [one.value for part in made for one in ast.walk(part) if isinstance(one, ast.AnnAssign | ast.Assign)]
    return any(
        (isinstance(value, ast.Dict | ast.List) and ast.unparse(value) in {"{}", "[]"})
        or (isinstance(value, ast.Call) and ast.unparse(value.func) in MEMORIES)
        for value in set_to
    )


def test_whoever_remembers_something_forgets_it_or_says_why_not() -> None:
    found = set(memories()) - {"Pasts"}
    assert found - FORGETS - KEEPS.keys() == set(), "say here why it may keep that, or have it told by `Pasts`"
    assert (FORGETS | KEEPS.keys()) - found == set(), "these remember nothing any more"


def test_who_forgets_is_told(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    told: list[object] = []
    scene.context.pasts.whenever_given_up = told.append  # type: ignore[method-assign]
    Parts.of(scene.context)
    assert len(told) == len(FORGETS - {"GapStarts", "PartitionSuspects", "StaleStream"}), (
        "the context and the watch tell these"
    )


@pytest.mark.parametrize("to_lsn", [0, 500])
def test_what_was_proved_behind_it_is_proved_no_more(tmp_path: Path, to_lsn: int) -> None:
    scene = Scene(tmp_path)
    scene.source_tables.gap_starts.looked_lsn = 1000
    scene.context.pasts.give_up(to_lsn)
    assert scene.source_tables.gap_starts.looked_lsn == to_lsn
