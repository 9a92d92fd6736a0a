"""What the verbs ask of a running kuvasz, and what they make of its answers."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from rich.console import Console

from kuvasz.config.load import load
from kuvasz.config.model import Config
from kuvasz.errors import ConfigError, StateError
from kuvasz.state.ports import ServerAddress
from kuvasz.state.store import state_of
from kuvasz.verbs import remote


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers what the server is told to, and keeps what it is asked."""

    server: Server

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.server.asked.append((self.command, self.path, self.headers.get("Authorization"), body))
        code, text = self.server.answer
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = _answer  # noqa: N815 (names of the standard library)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """A kuvasz, as far as it answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, str | None, Any]] = []
        self.answer = (200, "{}")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


def config_of(folder: Path, address: str | None) -> Config:
    databases = [{"database": "shop", "urls": [{"url": "postgresql:///shop"}], "tables": {"items": None}}]
    document = {"pipeline": {"state": str(folder / "state")}, "server": {"address": address}, "databases": databases}
    file = folder / "map.yaml"
    file.write_text(json.dumps(document))
    return load(file, {}).config


@pytest.fixture
def config(tmp_path: Path, server: Server) -> Config:
    """One whose kuvasz runs elsewhere than the map says."""
    found = config_of(tmp_path, "127.0.0.1:1")
    state_of(found).address.leave(ServerAddress(url=f"http://{server.address}", token="geheim"))
    return found


def test_commands_bring_the_token_who_gives_them_and_what_was_given_alone(
    config: Config, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.setattr(socket, "gethostname", lambda: "laptop")
    server.answer = (202, '{"verb": "pause", "tables": []}')
    assert remote.command(config, "pause", table="items", sid=None) == {"verb": "pause", "tables": []}
    server.answer = (200, '{"tables": [{"target": "shop.items"}]}')
    assert remote.maintain(config, ["shop.items"], full=True) == [{"target": "shop.items"}]
    assert server.asked == [
        ("POST", "/api/pause", "Bearer geheim", {"table": "items", "by": "ann@laptop"}),
        ("POST", "/api/maintain", "Bearer geheim", {"targets": ["shop.items"], "full": True}),
    ]


class Cluster:
    """Two processes that share a map with two groups of databases, and what each of them answers."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, one: Server, two: Server) -> None:
        self.one, self.two = one, two
        databases = [
            {"database": name, "urls": [{"url": f"postgresql:///{name}"}], "tables": {f"{name}_items": None}}
            for name in ("shop", "crm")
        ]
        file = folder / "map.yaml"
        file.write_text(json.dumps({"pipeline": {"state": str(folder / "state")}, "databases": databases}))
        self.config = load(file, {}).config
        places = [ServerAddress(url=f"http://{of.address}", token="t", node=of.address) for of in (one, two)]
        state = SimpleNamespace(address=SimpleNamespace(all=lambda: places, find=lambda: places[0]))
        monkeypatch.setattr(remote, "state_of", lambda _: state)

    def answer(self, one: object, two: object, codes: tuple[int, int] = (200, 200)) -> None:
        self.one.answer, self.two.answer = (codes[0], json.dumps(one)), (codes[1], json.dumps(two))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> Iterator[Cluster]:
    with serving() as other:
        yield Cluster(tmp_path, monkeypatch, server, other)


def test_a_group_that_none_of_several_has_just_now_is_missing(cluster: Cluster) -> None:
    """It changes hands, say: who looks at what is there alone would take the rest for well."""
    cluster.answer({"sources": [{"source": "shop"}]}, {"sources": [{"source": "crm"}]})
    assert "silent" not in remote.status(cluster.config)
    cluster.answer({"sources": [{"source": "shop"}]}, {"sources": []})
    assert remote.status(cluster.config)["silent"] == ["none of the processes that answer has source crm just now"]
    cluster.answer({"tables": [{"source": "shop"}], "sources": [{"source": "shop"}]}, {"sources": []})
    answer = remote.command(cluster.config, "pause", table="items", sid=None)
    assert answer["silent"] == ["none of the processes that answer has source crm just now"]


def test_who_shares_the_map_is_not_nobody_where_the_coordinator_does_not_answer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is found by the map's address: what it has would be taken for all that there is."""

    def unanswered() -> NoReturn:
        raise StateError("the coordinator does not answer")

    state = SimpleNamespace(address=SimpleNamespace(all=unanswered, find=lambda: None))
    monkeypatch.setattr(remote, "state_of", lambda _: state)
    server = cluster.config.server.model_copy(update={"address": cluster.one.address})
    config = cluster.config.model_copy(update={"server": server})
    cluster.answer({"sources": [{"source": "shop"}]}, {"sources": [{"source": "crm"}]})
    assert remote.status(config)["silent"] == [
        "the coordinator does not answer", "none of the processes that answer has source crm just now"
    ]  # fmt: skip
    with pytest.raises(StateError, match="the coordinator does not answer"):
        remote.command(config, "pause", table="items", sid=None)


def test_a_cut_that_one_of_several_refuses_says_what_is_not_in_it(cluster: Cluster) -> None:
    made = {"name": "x", "tag": "cut_x", "lsns": {"shop": "0/1"}, "snapshots": {"shop.items": 1}}
    none = {"error": "the map has no database", "hint": None}
    cluster.answer(made, made | {"lsns": {"crm": "0/2"}})
    assert "silent" not in remote.cut(cluster.config, name="x", database=None, keep=None)
    cluster.answer(made, {"error": "source crm, table items: it is copying", "hint": None}, (200, 409))
    told = ["source crm, table items: it is copying", "source crm: it is not in this cut"]
    assert remote.cut(cluster.config, name="x", database=None, keep=None)["silent"] == told
    cluster.answer(made, none, (200, 404))
    assert "silent" not in remote.cut(cluster.config, name="x", database="shop", keep=None)
    answer = remote.cut(cluster.config, name="x", database=None, keep=None)
    assert answer["silent"] == ["source crm: it is not in this cut"], "it changes hands"
    assert remote.cut_lines(answer).splitlines()[-1] == "  not all of it: source crm: it is not in this cut"


def test_each_of_several_publishes_what_it_has(cluster: Cluster) -> None:
    cluster.answer({"tables": [{"target": "shop.items"}]}, {"error": "no such table", "hint": None}, (200, 404))
    nothing = {"table": None, "branch": None, "cut": None, "is_trial": False, "is_forced": False}
    assert remote.publish(cluster.config, **nothing) == [{"target": "shop.items"}]
    cluster.answer({"tables": [{"target": "shop.items"}]}, {"tables": [{"target": "crm.items"}]})
    assert remote.publish(cluster.config, **nothing) == [{"target": "shop.items"}, {"target": "crm.items"}]


def test_who_only_looks_needs_no_token(tmp_path: Path, server: Server) -> None:
    config = config_of(tmp_path, server.address)
    assert remote.status(config) == {}
    assert server.asked == [("GET", "/status", None, None)]
    with pytest.raises(remote.ForeignServer) as told:
        remote.command(config, "retry", table="items", sid=None)
    place = tmp_path / "state" / "server.json"
    assert told.value.message == f"something answers at http://{server.address}, and left no token in {place}"


@pytest.mark.parametrize(
    ("answer", "message", "hint"),
    [
        ((409, '{"error": "it is paused already", "hint": "look"}'), "it is paused already", "look"),
        ((502, "<html>"), "kuvasz answers 502 Bad Gateway", None),
        ((500, "[]"), "kuvasz answers 500 Internal Server Error", None),
    ],
)  # fmt: skip
def test_what_is_refused_says_why(
    config: Config, server: Server, answer: tuple[int, str], message: str, hint: str | None
) -> None:
    server.answer = answer
    with pytest.raises(remote.Refused) as told:
        remote.status(config)
    assert (told.value.message, told.value.hint) == (message, hint)


def test_an_answer_that_is_none_is_no_kuvasz(config: Config, server: Server) -> None:
    server.answer = (200, "hello")
    with pytest.raises(remote.NotRunning, match=rf"no kuvasz answers at http://{server.address}: "):
        remote.status(config)


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        (None, ConfigError, "server.address is null: a running kuvasz cannot be asked"),
        ("127.0.0.1:0", remote.NotRunning, "no kuvasz runs: server.address is 127.0.0.1:0, and its port is not in the"
                                           " state folder"),
        ("127.0.0.1:1", remote.NotRunning, "no kuvasz answers at http://127.0.0.1:1: connection refused"),
        ("0.0.0.0:1", remote.NotRunning, "no kuvasz answers at http://127.0.0.1:1: connection refused"),
    ],
)  # fmt: skip
def test_where_nobody_answers_is_told(
    tmp_path: Path, address: str | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as told:
        remote.status(config_of(tmp_path, address))
    assert told.value.message == message  # type: ignore[attr-defined]


def table(**facts: Any) -> dict[str, Any]:
    return {
        "table": "public.items", "target": "shop.items", "state": "streaming", "since": "2026-01-01T00:00:00.5Z",
        "error": None, "retry_at": None, "copy_progress": None, "copied_rows": 0, "rows": 1200,
        "newest_change_at": None, "parked": None, "why_copy": None,
    } | facts  # fmt: skip


def source(*tables: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {
        "source": "shop_eu", "state": "streaming", "error": None, "retry_at": None, "lag_seconds": 0.0,
        "lag_bytes": 0, "confirmed_lsn": "0/10", "slot": None, "tables": list(tables),
    } | facts  # fmt: skip


def shown(*sources: dict[str, Any], **facts: Any) -> str:
    answer = {
        "version": "0.1.0", "phase": "running", "started_at": "2026-01-01T00:00:00.123456Z", "waiting_bytes": 0,
        "memory_bytes": 1 << 30, "sources": list(sources),
    } | facts  # fmt: skip
    console = Console(width=200, record=True, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    console.print(remote.render(answer))
    return "\n".join(" ".join(line.split()) for line in console.export_text().splitlines())


def test_a_person_sees_sources_and_tables() -> None:
    slot = {"retained_bytes": 4096, "status": "reserved", "safe_bytes": 2048, "seconds_left": 90}
    parked = {"bytes": 5120, "since": "2026-01-02T03:04:05.5Z", "is_full": True}
    assert (
        shown(
            source(
                table(),
                table(
                    state="copying",
                    copy_progress=0.25,
                    copied_rows=3000,
                    parked=parked,
                    copy_rows_per_second=150.4,
                    copy_seconds_left=60.0,
                ),
                slot=slot,
            ),
            source(lag_seconds=None, lag_bytes=None),
        )
        == """\
kuvasz 0.1.0, running since 2026-01-01T00:00:00Z, 0 B of 1.0 GB waiting

shop_eu streaming 0.0 s behind, 0 B of WAL, confirmed 0/10, slot keeps 4.0 kB (reserved, 2.0 kB before it is lost: \
0:01:30 at this rate)
public.items shop.items streaming 1,200 changes
public.items shop.items copying 25%, 3,000 rows, 150/s, 0:01:00 left 5.0 kB parked since 2026-01-02T03:04:05Z, full: \
the source keeps the rest

shop_eu streaming lag unknown, confirmed 0/10
"""
    )


def test_the_staged_log_is_shown_where_there_is_one() -> None:
    log = {
        "waiting_bytes": 2048,
        "is_full": False,
        "objects": 3,
        "staged_at": "2026-01-02T03:04:05.5Z",
        "error": None,
    }
    assert "log: 2.0 kB waiting, 3 objects, staged last at 2026-01-02T03:04:05Z" in shown(source(table()), log=log)
    failing = shown(source(table()), log=log | {"is_full": True, "staged_at": None, "error": "the store is away"})
    assert "log: 2.0 kB waiting, and sources are not read, 3 objects\nthe store is away" in failing
    assert "log:" not in shown(source(table()), log=None)


def test_why_a_table_is_copied_again_is_told_below() -> None:
    found = shown(source(table(state="copying", why_copy="its rows are copied again: the key was changed")))
    assert "public.items: its rows are copied again: the key was changed" in found


def test_until_when_a_copy_waits_for_its_hours_is_told_below() -> None:
    found = shown(source(table(state="new", copy_resumes_at="2026-01-01T22:00:00.000+00:00")))
    assert "public.items: its copy waits for its hours, until 2026-01-01T22:00:00Z" in found


def test_whose_transactions_a_copy_waits_for_is_told_below() -> None:
    found = shown(source(table(state="new", waits_for="pid 7 (anna, psql, running for 300 s)")))
    assert "public.items: its copy waits for transactions to end: pid 7 (anna, psql, running for 300 s)" in found


def test_what_is_wrong_is_told_below_with_its_next_attempt() -> None:
    wrong = {"message": "it has no key", "hint": "add one"}
    found = shown(
        source(
            table(state="error", error=wrong, retry_at="2026-01-01T00:00:30.5Z"), state="waiting",
            error="connection lost", retry_at="2026-01-01T00:00:09.5Z",
        )
    )  # fmt: skip
    assert "connection lost\ntried again at 2026-01-01T00:00:09Z\n" in found
    assert found.endswith(
        "public.items, since 2026-01-01T00:00:00Z: it has no key\nhint: add one\ntried again at 2026-01-01T00:00:30Z"
    )


def test_files_are_shown_where_they_are_looked_after() -> None:
    one = {
        "target": "shop.items", "files": 12, "average_bytes": 1 << 20, "dead_share": 0.1, "delete_files": 3,
        "snapshots": None, "rewritten_bytes": 2048, "changed_bytes": 1024, "error": None,
        "last_at": "2026-01-01T00:00:00.5Z", "next_at": None,
    }  # fmt: skip
    assert "files, last written anew 2026-01-01T00:00:00Z\n" in shown(maintenance=[one])
    assert "shop.items 12 files of 1.0 MB 10% dead rows 3 with deletes 2.0 kB rewritten for 1.0 kB changed" in shown(
        maintenance=[one]
    )


@pytest.mark.parametrize(
    ("sources", "code"),
    [
        ([], 0),
        ([("streaming", ["streaming", "paused"]), ("starting", ["new"])], 0),
        ([("streaming", ["streaming", "error"])], 1),
        ([("waiting", ["streaming"]), ("streaming", ["streaming"])], 1),
        ([("error", ["streaming"]), ("waiting", ["error"])], 5),
    ],
)
def test_a_script_sees_that_something_is_in_error(sources: list[tuple[str, list[str]]], code: int) -> None:
    answer = {
        "sources": [{"state": state, "tables": [{"state": one} for one in tables]} for state, tables in sources]
    }
    assert remote.exit_code(answer) == code


def test_a_script_sees_that_a_table_is_held_for_a_person() -> None:
    """A change of its columns waits for a word (`on_schema_change: hold`): it is paused, and nobody paused it."""
    held = {"state": "paused", "error": {"kind": "SchemaHeld", "message": "it changed", "hint": "retry"}}
    tables = [{"state": "streaming", "error": None}, {"state": "paused", "error": None}]
    answer: dict[str, Any] = {"sources": [{"state": "streaming", "tables": tables}]}
    assert remote.exit_code(answer) == 0
    tables.append(held)
    assert remote.exit_code(answer) == 1


def test_a_reload_says_what_differs(config: Config, server: Server) -> None:
    answer = {
        "verb": "reload", "added": ["shop_ap"], "removed": ["shop_us"], "needs_restart": ["pipeline.workers"],
        "changed": [{"source": "shop_eu", "options": ["url"], "added": ["a"], "removed": ["b"], "changed": ["c"]}],
    }  # fmt: skip
    server.answer = (202, json.dumps(answer))
    assert remote.reload(config, is_trial=True) == answer
    ((_, path, _, body),) = server.asked
    assert (path, body["dry_run"]) == ("/api/map/reload", True)
    assert remote.differences(answer).split("\n") == [
        "source shop_ap: added",
        "source shop_us: removed",
        "source shop_eu: url, table a added, table b removed, table c changed; it is begun again",
        "pipeline.workers: counts from the next start on",
    ]
    assert remote.differences({key: [] for key in answer}) == "no source or table differs"


def test_who_plans_is_told_what_a_reload_would_change(config: Config, server: Server, tmp_path: Path) -> None:
    answer = {"added": ["shop_ap"], "removed": [], "changed": [], "needs_restart": []}
    server.answer = (200, json.dumps(answer))
    head = "the running kuvasz, by `kuvasz reload`:\n"
    assert remote.foretold(config) == f"{head}  source shop_ap: added\n\n"
    server.answer = (409, '{"error": "target shop.items: type", "hint": "restart"}')
    assert remote.foretold(config) == f"{head}  refused: target shop.items: type\n  hint: restart\n\n"
    (tmp_path / "none").mkdir()
    assert remote.foretold(config_of(tmp_path / "none", "127.0.0.1:1")) == ""
    assert remote.foretold(config_of(tmp_path / "none", None)) == ""
