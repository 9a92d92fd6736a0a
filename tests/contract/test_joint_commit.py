"""Commits of several tables at once, by every catalog that can: all are shown, or none, whatever is answered."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kuvasz.errors import LakeError
from kuvasz.lake.iceberg.lake import IcebergLake
from kuvasz.lake.jvm.joint.joint_commit import JointCommit
from kuvasz.ports import Failure, Receipt, TableWork
from kuvasz.state.store import state_of
from tests.support.changes import ITEMS, SAME, Sender, feed, target, update, work
from tests.support.lake import LakeFolder
from tests.support.rest_catalog import JOINT, Fault, RestCatalogFolder, lose_connection, refuse
from tests.support.worlds import QUIET, IcebergWorld

pytestmark = pytest.mark.spark

A, B = "shop.a", "shop.b"

OFFERED = ["GET /v1/{prefix}/namespaces", "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"]


class Group:
    """Two tables of one group, each with one row of the source eu.

    Args:
        folder: Of the lake.
        options: Of the targets.
    """

    def __init__(self, folder: LakeFolder, **options: Any) -> None:
        self.folder = folder
        self.world = IcebergWorld(folder, QUIET)
        self._sender = Sender()
        for name in (A, B):
            self.world.lake.prepare(
                dataclasses.replace(target(name), group="shop", **options), feed("eu", name), ITEMS
            )
            self.world.copy("eu", (1, 100, "b"), name=name)

    def works(self, a: int, b: int) -> list[TableWork]:
        """A transaction that sets the row of either table."""
        lsn = self._sender.commit_lsn()
        return [
            work(self._sender.segment([(lsn, [update(1, n, SAME)])]), target=name) for name, n in ((A, a), (B, b))
        ]  # fmt: skip

    def apply(self, a: int, b: int) -> list[Receipt | Failure]:
        return list(self.world.apply(*self.works(a, b)))

    def applied(self, a: int, b: int) -> None:
        self.world.applied(*self.works(a, b))

    def numbers(self) -> tuple[int, int]:
        return self.world.of("eu", A)[1][0], self.world.of("eu", B)[1][0]

    def snapshots(self) -> tuple[int, int]:
        return self.world.snapshots(A), self.world.snapshots(B)

    def change(self, name: str) -> None:
        """Change a table as another engine does."""
        self.world.sql(f"INSERT INTO {self.world.catalog}.{name} VALUES ('another', 7L, 7, 'theirs')")

    def before_swap(self, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
        """Have something happen before each of the next times that commits are shown."""
        swap, due = JointCommit.swap, list(steps)

        def late(joint: JointCommit, commits: Any) -> list[str]:
            if due:
                due.pop(0)()
            return swap(joint, commits)

        monkeypatch.setattr(JointCommit, "swap", late)

    def unnamed(self) -> set[str]:
        """Manifests and lists of them that no snapshot names."""
        found, named = set(), set()
        for name in (A, B):
            table = self.world.iceberg(name)
            for snapshot in table.metadata.snapshots:
                named.add(Path(snapshot.manifest_list).name)
                named |= {Path(manifest.manifest_path).name for manifest in snapshot.manifests(table.io)}
            folder = Path(table.location().removeprefix("file://").removeprefix("file:")) / "metadata"
            found |= {path.name for path in folder.glob("*.avro")}
        return found - named

    def close(self) -> None:
        self.world.lake.close()


@pytest.fixture(params=["jdbc", "rest"])
def folder(request: pytest.FixtureRequest) -> LakeFolder:
    """Of a lake in either catalog."""
    return request.getfixturevalue("lake_folder" if request.param == "jdbc" else "rest_catalog")


@pytest.fixture
def group(folder: LakeFolder) -> Iterator[Group]:
    """A group in either catalog."""
    made = Group(folder)
    yield made
    made.close()


@pytest.fixture
def behind_rest(rest_catalog: RestCatalogFolder) -> Iterator[Group]:
    """A group in a catalog behind REST."""
    made = Group(rest_catalog)
    yield made
    made.close()


def test_both_change_in_one_step(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    group.before_swap(monkeypatch, lambda: seen.append(group.numbers()))
    group.applied(90, 110)
    assert (seen, group.numbers(), group.snapshots()) == ([(100, 100)], (90, 110), (2, 2))
    assert group.world.position("eu", A) == group.world.position("eu", B)
    assert group.unnamed() == set()


def test_none_changes_where_another_writer_came_first_until_it_is_written_upon_that(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    group.before_swap(monkeypatch, lambda: group.change(B), lambda: seen.append(group.numbers()))
    group.applied(90, 110)
    assert seen == [(100, 100)], "the first attempt showed neither"
    assert (group.numbers(), group.snapshots()) == ((90, 110), (2, 3))
    assert group.world.lake.commit_conflicts == 2, "when it was shown, and when it was written upon that"
    assert group.world.of("another", B) == {7: (7, "theirs")}
    assert group.unnamed() == set(), "what was written for the first attempt is removed"


@pytest.mark.parametrize("format_version", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_so_it_is_on_a_branch_in_either_format(folder: LakeFolder, format_version: int) -> None:
    folder.format_version = format_version
    group = Group(folder, branch="audit")
    try:
        group.applied(90, 110)
        group.applied(80, 120)
        tables = [group.world.iceberg(name) for name in (A, B)]
        assert [table.scan().use_ref("audit").to_arrow()["n"].to_pylist() for table in tables] == [[80], [120]]
        assert [table.format_version for table in tables] == [format_version] * 2
    finally:
        group.close()


def test_a_table_that_is_dropped_meanwhile_stops_and_the_other_goes_on(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.before_swap(monkeypatch, lambda: group.world.lake.engine.catalog.drop(A))
    outcomes = {one.target: one for one in group.apply(90, 110)}
    assert isinstance(outcomes[A], Failure)
    assert isinstance(outcomes[B], Receipt)
    assert group.world.of("eu", B)[1][0] == 110


def test_tables_that_first_ask_for_it_at_the_same_time_get_the_same(folder: LakeFolder) -> None:
    world = IcebergWorld(folder, QUIET)
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            made = [pool.submit(world.lake.engine.catalog.joint) for _ in range(4)]
        assert len({id(one.result()) for one in made}) == 1
    finally:
        world.lake.close()


# What a server may answer


def done_and(answer: Callable[[], Any]) -> Fault:
    def fault(go: Callable[[], Any]) -> Any:
        go()
        return answer()

    return fault


def not_done_and(answer: Callable[[], Any]) -> Fault:
    return lambda _: answer()


UNCLEAR = {
    "no answer": lose_connection,
    "500": lambda: refuse(500, "InternalServerError"),
    "502": lambda: ("<html>bad gateway</html>", 502),
    "503": lambda: refuse(503, "SlowDownException"),
    "a conflict with itself": lambda: refuse(409, "CommitFailedException"),
    "a redirection": lambda: refuse(418, "Teapot"),
}


#: Answers that `make test` has: each way to look up, found done and not done.
OFTEN = {("no answer", False), ("no answer", True), ("503", False), ("a conflict with itself", True)}


@pytest.mark.parametrize(
    ("answer", "is_done"),
    [
        pytest.param(answer, is_done, marks=() if (answer, is_done) in OFTEN else pytest.mark.slow)
        for answer in UNCLEAR
        for is_done in (False, True)
    ],
)
def test_what_the_server_has_done_is_looked_up(behind_rest: Group, answer: str, is_done: bool) -> None:
    server = behind_rest.folder.server
    server.faults.append((done_and if is_done else not_done_and)(UNCLEAR[answer]))
    behind_rest.applied(90, 110)
    assert (behind_rest.numbers(), behind_rest.snapshots()) == ((90, 110), (2, 2))
    behind_rest.applied(80, 120)
    assert behind_rest.numbers() == (80, 120)


def test_a_request_that_is_sent_again_because_the_server_was_busy_is_found(behind_rest: Group) -> None:
    behind_rest.folder.server.faults.append(
        done_and(lambda: refuse(503, "SlowDownException", **{"Retry-After": "0"}))
    )
    behind_rest.applied(90, 110)
    assert (behind_rest.numbers(), behind_rest.snapshots()) == ((90, 110), (2, 2))


@pytest.mark.parametrize("code", [400, *(pytest.param(code, marks=pytest.mark.slow) for code in (403, 404, 501))])
def test_what_the_server_refuses_is_removed_and_tried_again(behind_rest: Group, code: int) -> None:
    behind_rest.folder.server.faults.append(not_done_and(lambda: refuse(code, "Refused")))
    behind_rest.applied(90, 110)
    assert (behind_rest.numbers(), behind_rest.snapshots()) == ((90, 110), (2, 2))
    assert behind_rest.unnamed() == set()


def test_a_server_that_shows_a_part_is_told_of_and_the_rest_follows(
    behind_rest: Group, caplog: pytest.LogCaptureFixture
) -> None:
    server = behind_rest.folder.server

    def first_alone(_: object) -> Any:
        import flask

        server.catalog.commit_all(flask.request.get_json()["table-changes"][:1])
        return refuse(500, "InternalServerError")

    server.faults.append(first_alone)
    behind_rest.applied(90, 110)
    assert (behind_rest.numbers(), behind_rest.snapshots()) == ((90, 110), (2, 2))
    assert any(getattr(record, "event", None) == "group_torn" for record in caplog.records)


def test_a_commit_of_properties_asks_for_the_branch_as_well(behind_rest: Group) -> None:
    asked: list[Any] = []

    def note(go: Callable[[], Any]) -> Any:
        import flask

        asked.extend(flask.request.get_json()["table-changes"])
        go()
        return "", 204

    behind_rest.folder.server.faults.append(note)
    lsn = behind_rest._sender.commit_lsn()
    sender = behind_rest._sender
    behind_rest.world.lake.prepare(dataclasses.replace(target(B), group="shop"), feed("us", B), ITEMS)
    behind_rest.world.applied(
        work(sender.segment([(lsn, [update(1, 5, SAME)])]), target=A), work(target=B, through={"us": lsn + 8})
    )
    for change in asked:
        kinds = [one["type"] for one in change["requirements"]]
        assert "assert-ref-snapshot-id" in kinds, change


# A server that cannot


def test_a_start_refuses_a_server_without_the_endpoint(rest_catalog: RestCatalogFolder) -> None:
    rest_catalog.server.refusal = 404
    shop = {"database": "shop", "urls": [{"url": "postgresql:///none"}], "tables": {"items": None}}
    config = rest_catalog.config([{**shop, "consistency": "group"}], QUIET)
    lake = IcebergLake(config, state_of(config).witness, rest_catalog.session)
    with pytest.raises(LakeError, match="cannot change several tables in one commit: 404"):
        lake.open()


def test_one_that_does_not_list_it_is_refused_without_a_request(rest_catalog: RestCatalogFolder) -> None:
    rest_catalog.server.endpoints = [
        *OFFERED, "GET /v1/{prefix}/namespaces/{namespace}", "POST /v1/{prefix}/namespaces",
        "HEAD /v1/{prefix}/namespaces/{namespace}",
    ]  # fmt: skip
    world = IcebergWorld(rest_catalog, QUIET)
    try:
        with pytest.raises(LakeError, match=r"Server does not support endpoint: POST .*transactions/commit"):
            world.lake.engine.catalog.joint()
        assert rest_catalog.server.requests[JOINT] == 0
    finally:
        world.lake.close()
