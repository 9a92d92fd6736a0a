"""The archive for a bug report: all parts of a running kuvasz, and nothing that must not leave the house."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
import tarfile
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.catalogs import in_a_file
from tests.support.postgres import Database
from tests.support.process import Process

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

#: In urls: from the map itself, a variable, a file and a command.
PASSWORDS = ("Plain#Pass-word1", "Vari/able@word:2", "File%word&3", "Exec=word 4")

#: Elsewhere in the map, by names that say what they are, and by one that does not.
KEYS = (
    "SecretAccessKey5",
    "Bearer-token6",
    "Unnamed-auth7",
    "Hadoop-key8",
    "Mask-secret-for-pseudonyms-9",
    "From-a-file10",
    "a-Token-of-the-map-19",
)

#: In rows: of a plain column and a key, which are bounds of files, of a masked one, of one that is left out, of one
#: that is a partition, and those that an error, a filter and a parking log have.
VALUES = (
    "plain-value-11", "key-value-12", "masked-value-13", "excluded-value-14", "partition-value-15", "12345-06-07",
    "filtered-value-17", "parked-value-18",
)  # fmt: skip

FILL = """
INSERT INTO items VALUES
    ('key-value-12', 'plain-value-11', 'masked-value-13', 'excluded-value-14', 'partition-value-15'),
    ('other', 'other', 'other', 'other', 'other')
"""


def planted() -> set[str]:
    """All that must not be found, in the forms that it may have."""
    forms = {form for text in (*PASSWORDS, *KEYS, *VALUES) for form in (text, urllib.parse.quote(text, safe=""))}
    return forms | {json.dumps(text)[1:-1] for text in (*PASSWORDS, *KEYS, *VALUES)}


def unpacked(path: Path) -> dict[str, str]:
    """The files of an archive."""
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        (folder,) = {Path(member.name).parts[0] for member in members}
        assert folder.startswith("kuvasz-support-shop-")
        assert {member.mode for member in members} == {0o600}
        return {Path(member.name).name: archive.extractfile(member).read().decode() for member in members}


def found_in(files: dict[str, str], wanted: set[str]) -> set[tuple[str, str]]:
    return {(name, text) for name, content in files.items() for text in wanted if text in content}


@pytest.fixture
def process(database: Database, new_process: Callable[..., Process]) -> Process:
    database.execute("CREATE TABLE items (id text PRIMARY KEY, body text, mail text, card text, kind text)")
    database.execute("CREATE TABLE odd (id int PRIMARY KEY, at timestamptz, body text)")
    database.execute("CREATE ROLE agent SUPERUSER REPLICATION LOGIN")
    database.execute(FILL)
    properties = {
        "s3.secret-access-key": KEYS[0], "token": KEYS[1], "my.other": KEYS[2], "my.file": "${file:key}",
    }  # fmt: skip
    made = new_process(
        [], address="127.0.0.1:0", pipeline={"mask_secret": KEYS[4]}, lake={"properties": properties}
    )  # fmt: skip
    (made.folder / "key").write_text(KEYS[5])
    (made.folder / "password").write_text(PASSWORDS[2])
    (made.folder / "say").write_text(PASSWORDS[3])
    place = database.url.partition("@")[2]
    exec_ = f"${{exec:cat {made.folder}/say}}"
    ways = (urllib.parse.quote(PASSWORDS[0], safe=""), "${PASSWORD}", "${file:password}", exec_)
    tables = {
        "items": {"mask": {"mail": "hmac"}, "exclude": ["card"], "partition_by": ["kind"],
                  "filter": "body <> 'filtered-value-17'"},
        "odd": None,
    }  # fmt: skip
    urls = [{"url": f"postgresql://agent:{way}@{place}", "sid": f"s{number}"} for number, way in enumerate(ways)]
    made.write_map([{"database": "shop", "urls": urls, "tables": tables}])
    document = json.loads(made.map.read_text())
    (made.folder / "token").write_text(KEYS[6])
    document["server"]["tokens"] = [{"name": "ann", "role": "viewer", "token": "${file:token}"}]
    document["spark"]["conf"] = {"spark.hadoop.my.account": KEYS[3], "spark.sql.shuffle.partitions": "2"}
    made.map.write_text(json.dumps(document))
    yield made
    made.remove()
    database.execute("DROP OWNED BY agent CASCADE")


@in_a_file
@pytest.mark.timeout(600)
def test_an_archive_has_everything_but_secrets_and_values(
    process: Process, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", PASSWORDS[1])
    process.start()
    process.wait_event("copied", 8)
    database.execute("INSERT INTO odd VALUES (1, '12345-06-07', 'parked-value-18')")
    process.wait_event("table_failed", 4)
    database.execute("UPDATE items SET body = body || ' of now'")
    process.wait_until(lambda: str(process.rows("items")).count(" of now") == 2 * len(PASSWORDS), "all sources' rows")
    log = tmp_path / "kuvasz.log"
    log.write_text("\n".join([*map(json.dumps, process.events), *process.output, "anything: plain-value-11"]))
    assert VALUES[5] in log.read_text(), "else it proves nothing"
    process.wait_until(
        lambda: VALUES[7].encode() in b"".join(path.read_bytes() for path in process.parked()), "nor without this"
    )
    known = oracle.open_table(process.pyiceberg, "shop.items").inspect.files()
    assert VALUES[1] in str(known["lower_bounds"].to_pylist()), "nor without these"
    assert VALUES[4] in str(known["partition"].to_pylist())

    done = process.run("support", "--output", str(tmp_path), "--log-file", str(log))
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("kuvasz-support-shop-*.tar.gz")
    assert str(archive) in done.stdout
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    files = unpacked(archive)
    token = json.loads((process.folder / "state" / "server.json").read_text())["token"]
    assert found_in({**files, "stdout": done.stdout}, planted() | {token}) == set()

    assert set(files) == {
        "MANIFEST.txt", "configuration.yaml", "status.json", "events.txt", "threads.txt", "tasks.txt", "metrics.txt",
        "threads-by-signal.txt", "threads-of-java.txt", "log.txt", "versions.json", "sources.json", "state.json",
        "state-folder.txt", "tables.json", "check.txt", "check.json", "machine.json", "disks.json", "processes.json",
    }, done.stdout  # fmt: skip
    assert_whole(files, process.pid)

    process.terminate()
    database.execute("ALTER ROLE agent NOLOGIN")
    (process.folder / "catalog.db").rename(process.folder / "elsewhere.db")
    (process.folder / "catalog.db").write_text("no database")
    away = tmp_path / "away.tar.gz"
    done = process.run("support", "--output", str(away))
    assert done.returncode == 0, done.stderr
    files = {**unpacked(away), "stdout": done.stdout}
    assert found_in(files, planted()) == set()
    lines = {line.split()[0]: line for line in files["MANIFEST.txt"].splitlines() if line}
    for part in ("running", "metrics", "stacks", "java"):
        assert "MISSING" in lines[part], lines[part]
    assert "no kuvasz runs" in lines["running"]
    assert "4 of 4 sources do not answer" in lines["sources"]
    assert "the catalog cannot be opened: file is not a database" in lines["tables"]
    assert "FAILED" in files["check.txt"]
    assert "there" in lines["state"]


def assert_whole(files: dict[str, str], pid: int) -> None:
    """The archive of a kuvasz that runs says what a maintainer asks first."""
    assert "MISSING" not in files["MANIFEST.txt"]
    assert "spark.sql.shuffle.partitions: '2'" in files["configuration.yaml"]
    status = json.loads(files["status.json"])
    assert {source["state"] for source in status["sources"]} == {"streaming"}
    tables = [table for source in status["sources"] for table in source["tables"]]
    assert {table["error"]["kind"] for table in tables if table["error"]} == {"RefusedValue"}, tables
    assert "table_failed" in files["events.txt"]
    assert "kuvasz_table_state" in files["metrics.txt"]
    assert "task observer" in files["tasks.txt"]
    assert "thread MainThread" in files["threads.txt"]
    assert "kuvasz/cli.py" in files["threads-by-signal.txt"]
    assert "Full thread dump" in files["threads-of-java.txt"]
    assert '"event": "copied"' in files["log.txt"]
    assert {facts["version"] // 10000 for facts in json.loads(files["sources.json"]).values()} == {18}
    assert "parked/" in files["state-folder.txt"]
    items = json.loads(files["tables.json"])["shop.items"]
    assert [column["name"] for column in items["schema"]][:2] == ["sid", "id"]
    assert items["manifests"]["data"]["files"] > 0
    assert items["snapshot"]["summary"]["total-records"].isdigit()
    assert len(items["notes"]) == 4
    assert json.loads(files["disks.json"])["state folder"]["free"] > 0
    assert str(pid) in json.loads(files["processes.json"])


def test_the_command_ends_though_a_source_never_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/shop?connect_timeout=60"
        map_ = {
            "server": {"address": "127.0.0.1:1"},
            "databases": [{"database": "shop", "urls": [{"url": place, "sid": "eu"}], "tables": {"items": None}}],
        }
        (tmp_path / "map.yaml").write_text(json.dumps(map_))
        command = [sys.executable, "-m", "kuvasz", "support", "--config", "map.yaml"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=True)
    assert "did not answer in time" in done.stdout
    (path,) = tmp_path.glob("*.tar.gz")
    assert "1 of 1 sources did not answer in time: shop_eu" in unpacked(path)["MANIFEST.txt"]
