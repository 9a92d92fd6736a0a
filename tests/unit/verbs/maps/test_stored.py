"""`kuvasz map`: a map taken into a database and out again, and what is refused on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kuvasz import cli
from kuvasz.errors import ConfigError, MapUnwritten
from kuvasz.state.maps.named import named
from kuvasz.verbs import remote
from kuvasz.verbs.maps import stored

MAP = """\
# ours
server: {address: null}
databases:
- {database: shop, urls: [{url: "postgresql://repl:${PW}@a/x"}], tables: {items: }}  # all of it
"""


def run(arguments: list[str], *, exit_code: int = 0) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == exit_code


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "a-secret")
    monkeypatch.delenv("KUVASZ_CONFIG", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "map.yaml"
    found.write_text(MAP)
    return found


def test_what_comes_out_is_what_went_in(
    file: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    where = f"sqlite:{tmp_path / 'map.db'}"
    run(["map", "import", str(file), "--map", where, "--json"])
    outcome = json.loads(capsysbinary.readouterr().out)
    assert outcome == {"place": where, "sources": 1, "is_new": True, "is_other": True, "is_running": False}
    assert (tmp_path / "map.db").stat().st_mode & 0o777 == 0o600
    assert b"a-secret" not in (tmp_path / "map.db").read_bytes(), "a reference stays a reference"
    run(["--config", where, "map", "export"])
    assert capsysbinary.readouterr().out == MAP.encode()
    run(["config", "--config", where])
    assert b"shop" in capsysbinary.readouterr().out


def test_earlier_versions_are_listed_and_given_out(
    file: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    where = f"sqlite:{tmp_path / 'map.db'}"
    run(["map", "import", str(file), "--map", where])
    run(["map", "import", str(file), "--map", where])
    assert b"has this map already" in capsysbinary.readouterr().out
    file.write_text(MAP.replace("ours", "theirs"))
    run(["map", "import", str(file), "--map", where])
    assert b"1 sources; no kuvasz answers here" in capsysbinary.readouterr().out
    run(["map", "versions", "--map", where, "--json"])
    assert [one["version"] for one in json.loads(capsysbinary.readouterr().out)] == [2, 1]
    run(["map", "versions", "--map", where])
    assert capsysbinary.readouterr().out.split()[0] == b"2"
    run(["map", "export", "--version", "1", "--map", where, "-o", str(tmp_path / "old.yaml")])
    assert ((tmp_path / "old.yaml").read_text(), (tmp_path / "old.yaml").stat().st_mode & 0o777) == (MAP, 0o600)
    with pytest.raises(MapUnwritten, match="file exists"):
        stored.write_out(b"", tmp_path / "old.yaml")


def test_a_faulty_map_is_told_by_its_file_and_changes_nothing(file: Path, tmp_path: Path) -> None:
    store = named(f"sqlite:{tmp_path / 'map.db'}")
    file.write_text(MAP.replace("urls", "urs"))
    with pytest.raises(ConfigError, match=r"map\.yaml:4:"):
        stored.taken_in(store, file, {})
    assert store.is_empty()


@pytest.mark.parametrize("reference", ["pw", "${FOLDER:-pw}"])
def test_a_path_that_would_begin_elsewhere_is_refused(file: Path, tmp_path: Path, reference: str) -> None:
    (tmp_path / "pw").write_text("a-secret")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pw").write_text("a-secret")
    store = named(f"sqlite:{tmp_path / 'other' / 'map.db'}")
    with pytest.raises(ConfigError, match=r"lake\.uri, lake\.warehouse, pipeline\.state: a relative path"):
        stored.taken_in(store, file, {})
    whole = 'lake: {uri: "jdbc:sqlite:/a/c.db", warehouse: /a/lake}\npipeline: {state: /a/state}\n'
    file.write_text(whole + MAP.replace("${PW}", f"${{file:{reference}}}"))
    with pytest.raises(ConfigError, match="databases: a relative path"):
        stored.taken_in(store, file, {})
    file.write_text(whole + MAP)
    assert stored.taken_in(store, file, {}).is_new


def test_what_the_running_kuvasz_refuses_is_taken_back(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = named(f"sqlite:{tmp_path / 'map.db'}")
    stored.taken_in(store, file, {})
    file.write_text(MAP.replace("ours", "theirs"))

    def reload(_: object, *, is_trial: bool = False, **_more: object) -> None:
        if not is_trial:
            raise remote.Refused("that needs a restart")

    monkeypatch.setattr(remote, "reload", reload)
    with pytest.raises(remote.Refused):
        stored.taken_in(store, file, {})
    assert store.raw() == MAP.encode()
    monkeypatch.setattr(remote, "reload", lambda *_, **__: None)
    assert stored.taken_in(store, file, {}).is_running


def test_a_map_that_is_faulty_by_now_is_replaced(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    store = named(f"sqlite:{tmp_path / 'map.db'}")
    stored.taken_in(store, file, {})
    monkeypatch.delenv("PW")
    file.write_text(MAP.replace("${PW}", "pw"))
    assert not stored.taken_in(store, file, {}).is_running
    assert store.raw() == MAP.replace("${PW}", "pw").encode()


def test_nobody_said_where(file: Path) -> None:
    run(["map", "import", str(file)], exit_code=2)
