"""The command line without sources or a running kuvasz: texts and exit codes."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kuvasz import __main__, cli
from kuvasz.verbs import remote, text, typetable, verify
from kuvasz.verbs.cluster import drain
from kuvasz.verbs.lake import publish, rejects
from tests.support.maps import SHOP
from tests.support.scene import CATALOG


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUVASZ_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("map.yaml").write_text(SHOP)


@pytest.fixture
def kuvasz(capsys: pytest.CaptureFixture[str]):
    """Runs the command line; returns exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            cli.main(arguments)
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return run


def test_without_a_map_it_says_how_to_name_one(kuvasz) -> None:
    for arguments in ((), ("config",), ("check",), ("status",)):
        hint = "hint: name it: kuvasz --config map.yaml, or KUVASZ_CONFIG; `kuvasz --help` has more\n"
        assert kuvasz(*arguments) == (2, "", f"error: there is no map\n{hint}")


def test_wrong_usage_is_2(kuvasz) -> None:
    assert kuvasz("nonsense")[0] == 2
    assert kuvasz("retry", "-c", "map.yaml")[0] == 2
    code, _, err = kuvasz("config", "-c", "map.yaml", "--set", "pipeline.workers")
    assert (code, err) == (2, "error: --set pipeline.workers: no value\nhint: write --set pipeline.workers=4\n")
    code, _, err = kuvasz("-c", "missing.yaml", "config")
    assert code == 2
    assert "missing.yaml" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--config", "map.yaml", "--set", "pipeline.workers=5", "config", "--json"),
        ("config", "--config", "map.yaml", "--set", "pipeline.workers=5", "--json"),
        ("--set", "pipeline.workers=3", "config", "-c", "map.yaml", "--set", "pipeline.workers=5", "--json"),
        ("-c", "map.yaml", "--set", "pipeline.workers=5", "config", "--set", "spark.master=local[1]", "--json"),
    ],
)
def test_global_options_stand_before_or_after_the_verb_and_the_later_wins(kuvasz, arguments: tuple[str, ...]) -> None:
    code, out, _ = kuvasz(*arguments)
    options = {option["path"]: (option["value"], option["origin"]) for option in json.loads(out)}
    assert (code, options["pipeline.workers"]) == (0, (5, "flag"))


def test_a_map_on_the_command_line_wins_over_the_environment(kuvasz, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("other.yaml").write_text(f"pipeline: {{workers: 7}}\n{SHOP}")
    monkeypatch.setenv("KUVASZ_CONFIG", "map.yaml")
    for arguments in (("-c", "other.yaml", "config"), ("config", "-c", "other.yaml")):
        assert "workers: 7" in kuvasz(*arguments)[1]
    assert "workers: 2" in kuvasz("config")[1]


def test_config_hides_secrets_and_names_origins(kuvasz) -> None:
    code, out, _ = kuvasz("config", "-c", "map.yaml")
    assert code == 0
    assert "postgresql://repl:***@eu1/shop" in out
    assert "geheim" not in out
    assert "workers: 2 # default" in " ".join(out.split()).replace("  ", " ")


def test_the_schema_needs_no_map(kuvasz) -> None:
    code, out, _ = kuvasz("config", "--schema")
    assert (code, json.loads(out)["title"]) == (0, "The map of kuvasz")


def test_types(kuvasz) -> None:
    code, out, _ = kuvasz("types", "--json")
    rows = {row["postgresql"]: row for row in json.loads(out)}
    assert code == 0
    assert rows["numeric(12,2)"]["iceberg"] == "decimal(12, 2)"
    assert rows["numeric(5,-2)"]["iceberg"] == "decimal(38, 0)"
    assert rows["int4[]"]["iceberg"] == "list<int>"
    assert "types: {column: decimal(p,s)}" in rows["numeric"]["note"]
    assert kuvasz("types")[1].splitlines()[0].split() == ["postgresql", "iceberg", "note"]


def test_type_names_are_postgresqls() -> None:
    from kuvasz import typemap

    assert typemap.postgresql_name(typemap.BUILTIN[1700], typetable._typmod(5, -2)) == "numeric(5,-2)"
    assert typemap.postgresql_name(typemap.BUILTIN[1231], typetable._typmod(9, 3)) == "numeric(9,3)[]"


def test_status_without_a_running_kuvasz(kuvasz) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    code, out, err = kuvasz("status", "-c", "map.yaml", "--set", f"server.address=127.0.0.1:{port}")
    assert (code, out) == (1, "")
    assert err == (
        f"error: no kuvasz answers at http://127.0.0.1:{port}: connection refused\n"
        "hint: start it with `kuvasz --config …`, or check `server.address`\n"
    )


def test_status_without_a_server(kuvasz) -> None:
    code, _, err = kuvasz("status", "-c", "map.yaml", "--set", "server.address=null")
    assert code == 2
    assert err.startswith("error: server.address is null: a running kuvasz cannot be asked\n")


def test_a_command_is_noted_where_a_running_kuvasz_could_not_be_asked(kuvasz) -> None:
    alone = ("-c", "map.yaml", "--set", "server.address=null")
    Path(".kuvasz").mkdir()
    code, out, err = kuvasz("resync", "--table", "orders", *alone)
    assert (code, err) == (0, "")
    assert out.endswith("no kuvasz runs here: noted for its next start\n")
    code, _, err = kuvasz("retry", "--table", "orders", *alone)
    assert (code, err.splitlines()[0]) == (2, "error: server.address is null: a running kuvasz cannot be asked")


def test_where_no_kuvasz_has_ever_run_nothing_is_noted(kuvasz) -> None:
    code, out, err = kuvasz("pause", "--table", "orders", "-c", "map.yaml", "--set", "server.address=null")
    assert (code, out) == (2, "")
    assert err == (
        f"error: no kuvasz has run with this map: there is no state folder {Path('.kuvasz').absolute()}\n"
        "hint: name the map, and what else says where its state is, as for the start; for a first start leave the"
        " table out of the map\n"
    )
    assert not Path(".kuvasz").exists()


def test_who_answers_without_our_token_is_not_steered_and_nothing_is_noted(kuvasz) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        address = f"127.0.0.1:{stranger.getsockname()[1]}"
        Path(".kuvasz").mkdir()
        for verb in ("pause", "resume", "retry", "resync"):
            code, out, err = kuvasz(verb, "--table", "orders", "-c", "map.yaml", "--set", f"server.address={address}")
            assert (code, out) == (1, "")
            assert err == (
                f"error: something answers at http://{address}, and left no token in"
                f" {Path('.kuvasz/server.json').absolute()}\n"
                "hint: if that is kuvasz, run this as its user, with its map and where it runs; if it is another"
                " program, give `server.address` another port\n"
            )
    assert list(Path(".kuvasz").iterdir()) == []


def test_a_verb_finds_the_state_of_its_map_from_any_folder(kuvasz, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path.cwd()
    Path(".kuvasz").mkdir()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    code, _, err = kuvasz("pause", "--table", "orders", "-c", "../map.yaml", "--set", "server.address=null")
    assert (code, err) == (0, "")
    assert (home / ".kuvasz" / "tables.json").exists()
    assert list(Path.cwd().iterdir()) == []


def test_there_is_nothing_to_retry_while_no_kuvasz_runs(kuvasz) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    code, _, err = kuvasz("retry", "--table", "orders", "-c", "map.yaml", "--set", f"server.address={address}")
    assert code == 1
    assert err == (
        f"error: no kuvasz answers at http://{address}: connection refused; there is nothing to retry\n"
        "hint: a start tries everything again by itself: kuvasz --config …\n"
    )


def test_cleanup_asks_before_it_drops(kuvasz) -> None:
    code, out, err = kuvasz("cleanup", "-c", "map.yaml")
    assert (code, out) == (2, "")
    assert err == (
        "error: cleanup drops slot and publication of every source:"
        " kuvasz_shop_eu at postgresql://repl:***@eu1/shop\n"
        "hint: afterwards every table has to be copied again; add --yes if that is meant\n"
    )


def test_what_this_version_does_not_do_is_refused_by_check_and_plan(kuvasz) -> None:
    Path("map.yaml").write_text(SHOP.replace("orders:", 'orders: {filter: "id > 1", on_schema_change: stop}'))
    for verb in ("check", "plan"):
        code, out, err = kuvasz(verb, "-c", "map.yaml")
        if code == 2:
            assert (out, err.splitlines()[0].startswith("error: ")) == ("", True)
        else:
            assert code in {1, 3}  # filters are known by now: the source is looked at, and is not there


def test_tables_of_text_keep_their_words() -> None:
    shown = text.table(("a", "b"), [("x", "one\ntwo"), ("long entry", "")])
    assert shown == "a           b\n----------  -------\nx           one two\nlong entry"


def test_discover_needs_a_url_or_a_map(kuvasz) -> None:
    code, _, err = kuvasz("discover")
    assert (code, err.splitlines()[0]) == (2, "error: there is no map")
    code, out, err = kuvasz("discover", "--url", "postgresql://postgres:geheim@127.0.0.1:1/shop")
    assert (code, out) == (1, "")
    assert "127.0.0.1:1" in err
    assert "geheim" not in err
    code, _, err = kuvasz("discover", "--url", "postgresql://postgres:${NO_SUCH_PW}@127.0.0.1:1/shop")
    assert (code, err.splitlines()[0].partition(" (")[0]) == (
        2, "error: --url: the environment variable NO_SUCH_PW is not set",
    )  # fmt: skip


def test_discover_takes_each_source_of_a_map(kuvasz) -> None:
    code, out, _ = kuvasz("discover", "-c", "map.yaml", "--json", "--set", "databases=[{database: shop, urls: [{url: "
                          "'postgresql://postgres@127.0.0.1:1/shop'}], tables: {items: }}]")  # fmt: skip
    (found,) = json.loads(out)
    assert (code, found["source"], found["error_code"], found["tables"]) == (1, "shop", 1, [])


def test_init_says_what_it_needs(kuvasz) -> None:
    assert kuvasz("init")[0] == 2
    url = "postgresql://postgres@127.0.0.1:1/shop"
    assert kuvasz("init", "--url", url, "--all-tables", "--tables", "a") == (
        2, "", "error: --all-tables and --tables say different things\nhint: give one of them\n",
    )  # fmt: skip
    code, out, err = kuvasz("init", "--url", url, "--output", "map.yaml")
    assert (code, out) == (2, "")
    assert (
        err == "error: 'map.yaml' is there already, and is not written over\nhint: name another file with --output\n"
    )
    assert kuvasz("init", "--url", url, "--output", "new.yaml")[0] == 1
    assert not Path("new.yaml").exists()


def test_init_prints_a_map_or_where_it_is(kuvasz, monkeypatch: pytest.MonkeyPatch) -> None:
    from kuvasz.source.catalog.inventory import Inventory
    from kuvasz.verbs.maps import init

    found = Inventory(location="k@h:5432/shop", database="shop", tables=(CATALOG,), extensions={})
    monkeypatch.setattr(init.inventory, "take", lambda url: found)
    code, out, err = kuvasz("init", "--url", "postgresql://k:geheim@h/shop", "--sid", "eu", "--except", "other*")
    assert (code, err.partition("\n")[0]) == (2, "error: no table is meant by 'other*'")
    code, out, err = kuvasz("init", "--url", "postgresql://k:geheim@h/shop", "--sid", "eu", "--tables", "*")
    assert (code, err, "geheim" in out) == (0, "", False)
    assert out.endswith("\n    items:\n")
    code, told, _ = kuvasz("init", "--url", "postgresql://k:geheim@h/shop", "--sid", "eu", "-o", "new.yaml")
    assert (code, Path("new.yaml").read_text("utf-8")) == (0, out)
    assert told == "written: new.yaml: 1 tables, 0 left out\nnext: export EU_PW=…; kuvasz --config new.yaml check\n"


def test_a_hangup_that_comes_early_is_remembered() -> None:
    before = signal.getsignal(signal.SIGHUP)
    try:
        heard = cli._remembered_hangup()
        assert not heard.is_set()
        os.kill(os.getpid(), signal.SIGHUP)
        assert heard.wait(10)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_modules_are_loaded_with_few_looks_for_garbage_and_what_runs_has_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[object] = []
    monkeypatch.setattr(gc, "set_threshold", lambda *sizes: told.append(sizes))
    monkeypatch.setattr(gc, "freeze", lambda: told.append("freeze"))
    monkeypatch.setattr(cli, "main", lambda: told.append("main"))
    __main__.main()
    cli._settle()
    (first, *_), main, freeze, (second, *_) = told
    assert (main, freeze) == ("main", "freeze")
    assert first > 10_000 > second


@pytest.mark.process
def test_a_start_loads_what_it_needs_and_little_more() -> None:
    program = (
        "import sys; from kuvasz.cli import _Run; from kuvasz.lake.files.spared import spare_pandas; spare_pandas()\n"
        "from kuvasz import app; from kuvasz.verbs import replicate; from kuvasz.verbs.sources import erasure_run\n"
        "from kuvasz.lake.iceberg.engine import _warm_index; from kuvasz.source import warmup\n"
        "_warm_index(); warmup.warm(); print(*sys.modules)\n"
    )
    loaded = _modules(program)
    assert not loaded & {"pandas", "pyarrow.dataset", "pyiceberg", "rich", "kuvasz.console"}
    assert len(loaded) <= 1_850  # 1,761 with coverage, which numba loads where it is; it was 2,261


#: What takes a verb long to load, and most of them no look at anything.
_HEAVY = frozenset(
    {"aiohttp", "numba", "numpy", "pandas", "psycopg", "pyarrow", "pyiceberg", "pyspark", "sqlalchemy"}
)


@pytest.mark.parametrize(
    ("verb", "needed", "most"),
    [  # modules that were counted: 233, 420, 485, 533, 627
        (["--help"], set(), 260),
        (["-c", "map.yaml", "config"], set(), 460),
        (["-c", "map.yaml", "status"], set(), 530),
        (["-c", "map.yaml", "check"], {"psycopg"}, 630),
        (["-c", "map.yaml", "trace", "--table", "t", "--key", "1"], {"numpy", "pyarrow", "pyiceberg"}, 700),
    ],
    ids=("help", "config", "status", "check", "trace"),
)
@pytest.mark.process
def test_a_verb_loads_what_it_needs_and_little_more(verb: list[str], needed: set[str], most: int) -> None:
    program = (
        "import contextlib, os, sys; from kuvasz.cli import main\n"
        "with open(os.devnull, 'w') as sys.stdout, contextlib.suppress(SystemExit):\n"
        f"    main({verb})\n"
        "print(*sys.modules, file=sys.__stdout__)\n"
    )
    loaded = _modules(program)
    assert loaded & _HEAVY == needed
    assert len(loaded) <= most


def _modules(program: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split() if name[0] != "_"}


def test_publish_is_told_what_to_show_and_whether_it_is_a_trial(kuvasz, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict] = []
    monkeypatch.setattr(publish, "run", lambda _, **options: given.append(options) or [])
    assert kuvasz("publish", "-c", "map.yaml", "--check", "--cut", "release")[0] == 0
    assert kuvasz("publish", "-c", "map.yaml", "--table", "items", "--branch", "staging", "--force")[0] == 0
    asked = [{name: value for name, value in one.items() if value} for one in given]
    assert asked == [
        {"cut": "release", "is_trial": True}, {"table": "items", "branch": "staging", "is_forced": True},
    ]  # fmt: skip


def test_rejected_rows_are_tried_again_table_by_table(kuvasz, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict] = []
    monkeypatch.setattr(rejects, "tables", lambda *_, **__: [("shop.items", "shop_eu"), ("shop.items", "shop_us")])
    monkeypatch.setattr(verify, "reports", lambda _, **options: given.append(options) or [])
    assert kuvasz("rejects", "-c", "map.yaml", "--retry")[0] == 0
    asked = [(one["table"], one["source"] if "source" in one else one["sid"], one["is_fixing"]) for one in given]
    assert asked == [("shop.items", "shop_eu", True), ("shop.items", "shop_us", True)]


@pytest.mark.parametrize("arguments", [(), ("--undo",)])
def test_a_process_is_drained_until_that_is_over(
    kuvasz, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(drain, "run", lambda _, node, *, is_over: f"{node} {is_over}")
    told = kuvasz("cluster", "drain", "reader-b", "-c", "map.yaml", *arguments)
    assert told == (0, f"reader-b {bool(arguments)}\n", "")


@pytest.mark.parametrize("is_json", [True, False])
def test_status_is_shown_again_until_somebody_ends_it(kuvasz, monkeypatch: pytest.MonkeyPatch, is_json: bool) -> None:
    shown: list[object] = []

    def once_more(_: object) -> dict:
        shown.append(_)
        if len(shown) > 2:
            raise KeyboardInterrupt
        return {"phase": "running", "sources": [], "lake": {}}

    monkeypatch.setattr(remote, "status", once_more)
    monkeypatch.setattr(remote, "render", str)
    monkeypatch.setattr(cli.time, "sleep", lambda _: None)
    code, out, _ = kuvasz("status", "--watch", "-c", "map.yaml", *(["--json"] if is_json else []))
    assert (code, "running" in out) == (130, True)
