"""What is told to the JVM and what comes back; that it commits the same is in tests/contract/test_iceberg.py."""

from __future__ import annotations

import json

import pytest

from kuvasz.lake.files.commit import TableCommit
from kuvasz.lake.jvm.jvm_calls import CurrentState, JvmCalls


class Compiled:
    """Stands for the Java object."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.told: dict[str, object] = {}
        self.direct: object = None

    def look(self, _: object) -> str:
        return self.answer

    def properties(self, _: object, seen: str) -> bytes | None:
        return None if seen == self.answer.partition("\n")[0] else self.answer.encode()

    def commit(self, _: object, text: str, direct: object) -> str:
        self.told, self.direct = json.loads(text), direct
        return self.answer


def told(commit: TableCommit) -> dict[str, object]:
    compiled = Compiled("7 - 0 1 3")
    assert JvmCalls(compiled, "direct").commit(None, commit, is_local=True) == CurrentState(7, None, 0, 1, 3)
    assert compiled.direct == "direct"
    return compiled.told


@pytest.mark.parametrize(
    ("answer", "state"),
    [("- - 3 0 2", CurrentState(None, None, 3, 0, 2)), ("12 11 0 5 3", CurrentState(12, 11, 0, 5, 3))],
)
def test_what_a_table_is_now(answer: str, state: CurrentState) -> None:
    assert JvmCalls(Compiled(answer), None).look(None) == state


def test_properties_are_read_where_the_metadata_is_another_one() -> None:
    calls = JvmCalls(Compiled('file:///m/00001.json\n{"a": "b\\n\u00e9"}'), None)
    assert calls.properties(None, "") == ("file:///m/00001.json", {"a": "b\n\u00e9"})
    assert calls.properties(None, "file:///m/00001.json") is None
    assert JvmCalls(Compiled("\n{}"), None).properties(None, "file:///m/00001.json") == ("", {}), "nobody says where"


def test_properties_alone_have_no_files() -> None:
    commit = TableCommit(snapshot_id=1, properties={"a": 'b"\\é'}, summary={"s": "t"}, removed_properties=["c"])
    assert told(commit) == {"properties": {"a": 'b"\\é'}, "removed_properties": ["c"]}


def test_files_are_told_as_they_are() -> None:
    commit = TableCommit(
        snapshot_id=1 << 62, properties={}, summary={"s": "t"},
        data_files=['{"file-path": "a"}', '{"file-path": "b"}'], added_deletes=['{"referenced-data-file": "x"}'],
        removed_deletes=['{"c": 1}'], removed_files=['{"d": 1}'],
    )  # fmt: skip
    assert told(commit) == {
        "properties": {}, "removed_properties": [], "summary": {"s": "t"}, "snapshot_id": 1 << 62, "existing": ["x"],
        "data_files": [{"file-path": "a"}, {"file-path": "b"}], "added_deletes": [{"referenced-data-file": "x"}],
        "removed_deletes": [{"c": 1}], "removed_files": [{"d": 1}],
    }  # fmt: skip


def test_files_that_are_exchanged_are_told_at_once() -> None:
    """File by file it took the lock of a table for ten seconds, where hundreds of sources had copied."""
    commit = TableCommit(
        snapshot_id=7, sequence=5, properties={}, summary={}, is_rewrite=True,
        data_files=('{"file-path": "new"}',), removed_files=('{"file-path": "a"}', '{"file-path": "b"}'),
        removed_deletes=('{"file-path": "d"}',),
    )  # fmt: skip
    found = told(commit)
    assert (found["is_swap"], found["snapshot_id"], found["sequence"]) == (True, 7, 5)
    assert found["removed_files"] == [{"file-path": "a"}, {"file-path": "b"}]
    assert found["removed_deletes"] == [{"file-path": "d"}]
    assert found["data_files"] == [{"file-path": "new"}]
    assert "existing" not in found, "all that it takes away is named"
    only = TableCommit(
        snapshot_id=7, properties={}, summary={}, is_rewrite=True, removed_deletes=('{"file-path": "d"}',)
    )
    assert told(only)["is_swap"], "rows stay, and a file of deletes goes"


def test_a_first_commit_has_no_snapshot_to_go_by() -> None:
    found = told(TableCommit(snapshot_id=None, properties={}, summary={}, data_files=["{}"]))
    assert "snapshot_id" not in found
    assert "existing" not in found


def test_a_table_that_is_not_local_keeps_its_thread_pools() -> None:
    compiled = Compiled("1 - 0 1 3")
    commit = TableCommit(snapshot_id=None, properties={}, summary={})
    JvmCalls(compiled, "direct").commit(None, commit, is_local=False)
    assert compiled.direct is None


class Scanned:
    """Stands for a scan's tasks."""

    def __init__(self) -> None:
        self.is_closed = False

    def iterator(self) -> list[str]:
        return ['[[3,{"file-path":"a"},[]],[4,{"file-path":"b"},[{"c":1}]]]', '[[5,{"file-path":"d"},[]]]', ""]

    def close(self) -> None:
        self.is_closed = True


class Scanning(Compiled):
    """A table with files."""

    def __init__(self) -> None:
        super().__init__("")
        self.scanned = Scanned()

    def scan(self, _: object, bounded: str) -> Scanned:
        assert bounded == "sid"
        return self.scanned

    def some(self, _: object, tasks: list[str], most: int) -> str:
        assert most > 0
        return tasks.pop(0)


def test_files_come_in_some_pieces_and_the_scan_is_closed() -> None:
    compiled = Scanning()
    assert [(number, data["file-path"], len(deletes)) for number, data, deletes in JvmCalls(compiled, None).files(
        None, "sid")] == [(3, "a", 0), (4, "b", 1), (5, "d", 0)]  # fmt: skip
    assert compiled.scanned.is_closed
    compiled = Scanning()
    rest = JvmCalls(compiled, None).files(None, "sid")
    next(rest)
    rest.close()
    assert compiled.scanned.is_closed, "also when nobody asks for the rest"
