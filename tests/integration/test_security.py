"""TLS with client certificates, SCRAM, password files and services, for the stream too; and where secrets end up."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import psycopg
import pytest

from kuvasz import log
from kuvasz.config import secrets
from kuvasz.config.load import load
from kuvasz.demo.postgres import EmbeddedPostgres
from tests.support.lake import MemoryPipeline, group
from tests.support.postgres import Database
from tests.support.process import Process
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgres

PASSWORD = "s3cr3t/with@odd:signs"


class TlsPostgres(EmbeddedPostgres):
    """A server of the distribution's packages, which can do TLS; the embedded ones cannot."""

    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))

    def command(self, name: str) -> Path:
        return self.folders[-1] / name


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def certify(folder: Path, name: str, subject: str, *, extensions: str = "") -> None:
    """Make a key and a certificate of the folder's own authority."""
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.csr",
            "-subj", f"/CN={subject}")  # fmt: skip
    (folder / f"{name}.ext").write_text(extensions)
    openssl("x509", "-req", "-in", f"{folder}/{name}.csr", "-CA", f"{folder}/ca.crt", "-CAkey", f"{folder}/ca.key",
            "-CAcreateserial", "-days", "2", "-out", f"{folder}/{name}.crt",
            "-extfile", f"{folder}/{name}.ext")  # fmt: skip
    (folder / f"{name}.key").chmod(0o600)


@pytest.fixture(scope="module")
def certificates() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-tls-"))
    for name in ("ca", "stranger"):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.crt")  # fmt: skip
    certify(folder, "server", "localhost", extensions="subjectAltName=DNS:localhost,IP:127.0.0.1")
    certify(folder, "client", "repl")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server(certificates: Path) -> Iterator[EmbeddedPostgres]:
    """A server that takes TLS alone: `repl` with a certificate, `scram` with a password."""
    if not TlsPostgres.folders:
        pytest.skip("no server with TLS is installed")
    made = TlsPostgres(Path(tempfile.mkdtemp(prefix="kuvasz-test-")) / "data")
    made.start()
    with psycopg.connect(made.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id int PRIMARY KEY, body text)")
        connection.execute("INSERT INTO items VALUES (1, 'copied')")
        connection.execute("GRANT CREATE ON DATABASE postgres TO PUBLIC")
        for role in ("repl", "scram"):
            connection.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{PASSWORD}'")
            connection.execute(f"GRANT SELECT ON items TO {role}")
            connection.execute(f"CREATE PUBLICATION kuvasz_{role} FOR TABLE items")
            connection.execute(f"ALTER PUBLICATION kuvasz_{role} OWNER TO {role}")
    owner = made.folder.stat()
    for name in ("server.key", "server.crt", "ca.crt"):
        shutil.copy(certificates / name, made.folder / name)
        os.chown(made.folder / name, owner.st_uid, owner.st_gid)
        (made.folder / name).chmod(0o600)
    made.settings |= {"ssl": "on", "ssl_ca_file": "ca.crt"}
    (made.folder / "pg_hba.conf").write_text(
        "local all postgres trust\nhostssl all repl all cert\nhostssl all scram all scram-sha-256\n"
        "host all postgres 127.0.0.1/32 trust\n"
    )
    made.restart()
    yield made
    made.stop("immediate")
    made.remove()


@contextlib.contextmanager
def replicating(role: str, url: str) -> Iterator[MemoryPipeline]:
    """Replicate over a url."""
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-security-"))
    document = {
        "lake": {"warehouse": str(folder), "namespace": "shop"},
        "pipeline": {"state": str(folder / "state"), "commit_interval": "20ms"},
        "server": {"address": None},
        "databases": [{"database": role, "urls": [{"url": url}], "tables": {"items": None}}],
    }
    (folder / "map.yaml").write_text(json.dumps(document))
    try:
        with MemoryPipeline(load(folder / "map.yaml", {}).config, SimpleNamespace()) as pipeline:
            pipeline.wait_streaming()
            yield pipeline
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def change(server: EmbeddedPostgres, pipeline: MemoryPipeline, body: str) -> None:
    """Change the row, and wait until it is there."""
    with psycopg.connect(server.url()) as connection:
        connection.execute("UPDATE items SET body = %s", (body,))
    wait_until(lambda: pipeline.rows() == [(1, body)], f"streamed: {pipeline.errors()}")


def run(server: EmbeddedPostgres, role: str, url: str) -> list[tuple]:
    """Replicate over a url, and return how the connection that streams was made."""
    with replicating(role, url) as pipeline:
        change(server, pipeline, role)
        with psycopg.connect(server.url()) as connection:
            # Of whoever is left: the server may take a while to see that the copy's session has gone.
            return connection.execute(
                "SELECT DISTINCT s.ssl, s.client_dn FROM pg_stat_ssl s JOIN pg_stat_replication USING (pid)"
            ).fetchall()


def test_client_certificates_and_verify_full_hold_for_the_stream_too(
    server: EmbeddedPostgres, certificates: Path
) -> None:
    files = f"sslrootcert={certificates}/ca.crt&sslcert={certificates}/client.crt&sslkey={certificates}/client.key"
    url = f"postgresql://repl@localhost:{server.port}/postgres?sslmode=verify-full&{files}"
    assert run(server, "repl", url) == [(True, "/CN=repl")]


@pytest.mark.parametrize("where", ["url", "passfile", "service"])
def test_passwords_by_scram_come_from_url_password_file_or_service(
    server: EmbeddedPostgres, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    tls = f"sslmode=verify-ca&sslrootcert={certificates}/ca.crt"
    escaped = PASSWORD.replace("/", "%2F").replace("@", "%40").replace(":", "%3A")
    url = f"postgresql://scram:{escaped}@localhost:{server.port}/postgres?{tls}"
    if where == "passfile":
        file = tmp_path / "pgpass"
        text = PASSWORD.replace(":", "\\:")
        file.write_text(f"localhost:{server.port}:*:scram:{text}\n")
        file.chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(file))
        url = f"postgresql://scram@localhost:{server.port}/postgres?{tls}"
    elif where == "service":
        file = tmp_path / "services.conf"
        file.write_text(
            f"[shop]\nhost=localhost\nport={server.port}\ndbname=postgres\nuser=scram\npassword={PASSWORD}\n"
            f"sslmode=verify-ca\nsslrootcert={certificates}/ca.crt\n"
        )
        monkeypatch.setenv("PGSERVICEFILE", str(file))
        url = "postgresql:///?service=shop"
    assert run(server, "scram", url) == [(True, None)]


def test_a_password_that_changes_is_read_from_its_file_at_the_next_connection(
    server: EmbeddedPostgres, certificates: Path, tmp_path: Path
) -> None:
    """Also from one that is not there for a while: whoever writes it may take it away first."""
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    tls = f"sslmode=verify-ca&sslrootcert={certificates}/ca.crt"
    url = f"postgresql://scram:${{file:{file}}}@localhost:{server.port}/postgres?{tls}"
    other = "an0ther/with@odd:signs"
    with replicating("scram", url) as pipeline, psycopg.connect(server.url(), autocommit=True) as connection:
        change(server, pipeline, "with the first")
        file.unlink()
        connection.execute(f"ALTER ROLE scram PASSWORD '{other}'")
        try:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'scram'")
            wait_until(lambda: any("cannot read the file" in text for text in pipeline.errors()), "it is not there")
            file.write_text(other)
            change(server, pipeline, "with the other")
        finally:
            connection.execute(f"ALTER ROLE scram PASSWORD '{PASSWORD}'")


def test_a_token_of_a_command_that_is_no_more_is_followed_by_the_next_one(
    server: EmbeddedPostgres, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a cloud's log-in tokens are: each good for a while, for new connections alone."""
    monkeypatch.setattr(secrets, "_SAID_S", 1.0)
    token = tmp_path / "token"
    token.write_text(PASSWORD)
    tls = f"sslmode=verify-ca&sslrootcert={certificates}/ca.crt"
    url = f"postgresql://scram:${{exec:cat {token}}}@localhost:{server.port}/postgres?{tls}"
    with replicating("scram", url) as pipeline, psycopg.connect(server.url(), autocommit=True) as connection:
        change(server, pipeline, "with the first token")
        try:
            for number in range(2):
                token.write_text(f"token-{number}/with@odd:signs")
                connection.execute(f"ALTER ROLE scram PASSWORD '{token.read_text()}'")
                change(server, pipeline, f"the connection lives on {number}")
                connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'scram'")
                change(server, pipeline, f"with the next token {number}")
        finally:
            connection.execute(f"ALTER ROLE scram PASSWORD '{PASSWORD}'")
        assert not [text for text in pipeline.errors() if "token-" in text]


@pytest.mark.parametrize(
    ("query", "password", "said"),
    [
        ("sslmode=verify-full&sslrootcert={certificates}/stranger.crt", "right", "certificate verify failed"),
        ("sslmode=disable", "right", "no encryption"),
        ("sslmode=require", "wrong-s3cr3t", "password authentication failed"),
    ],
    ids=["another authority", "no tls", "wrong password"],
)
def test_who_is_not_trusted_is_not_talked_to_and_no_secret_is_told(
    server: EmbeddedPostgres,
    certificates: Path,
    query: str,
    password: str,
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    escaped = "s3cr3t%2Fwith%40odd%3Asigns" if password == "right" else password
    url = f"postgresql://scram:{escaped}@localhost:{server.port}/postgres?{query.format(certificates=certificates)}"
    folder = Path(tempfile.mkdtemp(prefix="kuvasz-security-"))
    document = {
        "lake": {"warehouse": str(folder), "namespace": "shop"}, "pipeline": {"state": str(folder / "state")},
        "server": {"address": None},
        "databases": [{"database": "scram", "urls": [{"url": url}], "tables": {"items": None}}],
    }  # fmt: skip
    (folder / "map.yaml").write_text(json.dumps(document))
    loaded = load(folder / "map.yaml", {})
    caplog.set_level(logging.DEBUG, "kuvasz")
    with MemoryPipeline(loaded.config, SimpleNamespace()) as pipeline:
        wait_until(lambda: pipeline.errors() or not pipeline._thread.is_alive(), "it is told")
        told = [*pipeline.errors(), repr(pipeline.app.view()), repr(loaded.config), caplog.text]
    shutil.rmtree(folder, ignore_errors=True)
    assert any(said in text for text in told), told
    for secret in (PASSWORD, "s3cr3t", escaped):
        assert not [text for text in told if secret in text]


def test_log_lines_are_free_of_secrets_whatever_is_logged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    url = "postgresql://scram:s3cr3t%2Fwith%40odd%3Asigns@localhost/shop"
    file.write_text(json.dumps({"databases": [{"database": "s", "urls": [{"url": url}], "tables": {"t": None}}]}))
    loaded = load(file, {})
    log.set_up("json", loaded.secrets)
    for text in (url, PASSWORD, f"FATAL: password={PASSWORD}", "s3cr3t%2Fwith%40odd%3Asigns"):
        logging.getLogger("kuvasz.test").error("said %s", text, extra={"event": "x", "fact": text})
        try:
            raise ValueError(text)
        except ValueError:
            logging.getLogger("kuvasz.test").exception("failed")
    written = capsys.readouterr().err
    assert "***" in written
    assert "s3cr3t" not in written


@pytest.mark.spark
def test_no_secret_is_on_a_command_line_in_a_log_or_in_a_file(
    database: Database, new_process: Callable[..., Process]
) -> None:
    """Planted wherever one may stand in a map; looked for wherever anything is written."""
    database.execute("CREATE TABLE items (id bigint PRIMARY KEY, email text)")
    database.execute("INSERT INTO items VALUES (1, 'a@example.org')")
    url = database.url.replace("postgres@", "postgres:planted-url@")
    properties = {
        "s3.secret-access-key": "planted-s3",
        "jdbc.password": "planted-catalog",
        "adls.sas-token.shop": "planted-sas",
    }
    databases = group({None: database}, {"items": {"mask": {"email": "hmac"}}})
    databases[0]["urls"][0]["url"] = url
    process = new_process(databases, lake={"properties": properties}, pipeline={"mask_secret": "planted-mask-secret"})
    events = process.folder / "events"
    events.mkdir()
    document = json.loads(process.map.read_text())
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(),
            "spark.hadoop.fs.s3a.secret.key": "planted-hadoop", "spark.some.password": "planted-conf"}  # fmt: skip
    document["spark"]["conf"] = conf
    document["server"]["address"] = "127.0.0.1:0"
    process.map.write_text(json.dumps(document))

    process.start()
    process.wait_event("copied")
    database.execute("UPDATE items SET email = 'b@example.org'")
    process.wait_confirmed(database)
    running = [psutil.Process(process.pid), *process.helpers()]
    command_lines = {}
    for one in running:
        with contextlib.suppress(psutil.Error):  # some live for a moment only
            command_lines[f"command line of {one.name()}"] = " ".join(one.cmdline())
    assert any("java" in name for name in command_lines)
    status = subprocess.run(
        [sys.executable, "-m", "kuvasz", "status", "--config", str(process.map)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert process.terminate() < 60
    told = command_lines | {"status": status.stdout + status.stderr}
    told["log"] = "\n".join([*map(str, process.events), *process.output])
    for file in process.folder.rglob("*"):
        if file.is_file() and file != process.map:
            told[str(file.relative_to(process.folder))] = file.read_bytes().decode(errors="replace")
    assert [name for name in told if name.startswith("events/")]
    for place, text in told.items():
        assert "planted-" not in text, f"{place}: …{text[max(0, text.find('planted-') - 200) :][:300]}"
