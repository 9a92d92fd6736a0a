from __future__ import annotations

import socket
import threading

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from kuvasz.errors import ConfigError
from kuvasz.source import conninfo

URL = "postgresql://repl:s3cret@eu1:5433/shop?sslmode=verify-full&options=-c%20work_mem%3D8MB"


def test_every_part_of_the_url_is_kept():
    given = conninfo_to_dict(conninfo.conninfo(URL + "&target_session_attrs=read-write&connect_timeout=3"))
    assert (given["user"], given["password"], given["host"], given["port"], given["dbname"]) == (
        "repl", "s3cret", "eu1", "5433", "shop",
    )  # fmt: skip
    assert given["sslmode"] == "verify-full"
    assert given["target_session_attrs"] == "read-write"
    assert given["connect_timeout"] == "3"
    assert given["application_name"] == "kuvasz"
    assert given["keepalives"] == "1"


def test_a_url_may_override_manners_but_not_the_form_of_values():
    url = "postgresql://h/d?options=-c%20lock_timeout%3D5s%20-c%20timezone%3DAsia/Tokyo"
    options = conninfo_to_dict(conninfo.conninfo(url))["options"]
    assert options.index("lock_timeout=30s") < options.index("lock_timeout=5s")  # the last one counts
    assert options.index("timezone=Asia/Tokyo") < options.index("timezone=UTC")


def test_copy_and_stream_print_values_alike():
    plain = conninfo_to_dict(conninfo.conninfo(URL))["options"]
    stream = conninfo_to_dict(conninfo.replication_conninfo(URL))["options"]
    fixed = " ".join(f"-c {name}={value}" for name, value in conninfo.VALUE_SETTINGS.items())
    assert plain.endswith(fixed)
    assert stream.endswith(fixed)


def test_a_url_that_asks_for_replication_gives_ordinary_sessions_all_the_same():
    url = "postgresql://u@h/d?replication=database&sslmode=require"
    given = conninfo_to_dict(conninfo.conninfo(url))
    assert ("replication" in given, given["sslmode"]) == (False, "require")
    assert conninfo_to_dict(conninfo.replication_conninfo(url))["replication"] == "database"
    assert (conninfo.asks_for_replication(url), conninfo.asks_for_replication(URL)) == (True, False)


def test_a_replication_session_decodes_in_memory_and_waits_for_locks():
    given = conninfo_to_dict(conninfo.replication_conninfo(URL, decoding_memory="1GB"))
    assert given["replication"] == "database"
    assert "-c logical_decoding_work_mem=1GB" in given["options"]
    assert "-c lock_timeout=0" in given["options"]
    assert "replication" not in conninfo_to_dict(conninfo.plain_conninfo(conninfo.replication_conninfo(URL)))


def test_applied_twice_it_changes_nothing():
    once = conninfo.conninfo(URL)
    assert conninfo_to_dict(conninfo.conninfo(once)) == conninfo_to_dict(once)


def test_a_server_that_stands_elsewhere_is_the_one_that_libpq_would_find(monkeypatch, tmp_path):
    services = tmp_path / "services"
    services.write_text("[shop]\nhost=a,b\nport=1,2\nuser=repl\npassword=s3cret\n[bare]\nuser=repl\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    of_service = conninfo.conninfo("postgresql:///shop?service=shop&target_session_attrs=read-write")
    given = conninfo_to_dict(of_service)
    assert (given["host"], given["port"], given["target_session_attrs"]) == ("a,b", "1,2", "read-write")
    assert "s3cret" not in of_service  # libpq takes it from the file again
    assert conninfo_to_dict(conninfo.conninfo(of_service)) == given
    for url in ("postgresql:///shop?service=bare", "postgresql:///shop?service=none"):
        assert "host" not in conninfo_to_dict(conninfo.conninfo(url))
    monkeypatch.setenv("PGHOST", "c")
    monkeypatch.setenv("PGPORT", "3")
    given = conninfo_to_dict(conninfo.conninfo("postgresql:///shop"))
    assert (given["host"], given["port"]) == ("c", "3")
    assert conninfo_to_dict(conninfo.conninfo(URL))["host"] == "eu1"


def test_several_hosts_are_kept():
    given = conninfo_to_dict(conninfo.conninfo("postgresql://u@a:1,b:2/d"))
    assert (given["host"], given["port"]) == ("a,b", "1,2")
    assert conninfo.location("postgresql://u@a:1,b:2/d") == "u@a:1,b:2/d"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://u:pw@h:1/d", "postgresql://u:***@h:1/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://u@h/d?password=pw&sslmode=require", "postgresql://u:***@h/d?sslmode=require"),
        ("postgresql://u:pw@h/d?sslpassword=pw2", "postgresql://u:***@h/d?sslpassword=***"),
        ("postgresql://u:pw@a:1,b:2/d", "postgresql://u:***@a:1,b:2/d"),
        ("postgresql://u:pw@[::1]:1/d", "postgresql://u:***@[::1]:1/d"),
        ("host=h user=u password=pw dbname=d", "postgresql://u:***@h/d"),
        ("postgresql://u:pw@h:port/d?x=y", "<a url that cannot be read>"),
    ],
)
def test_redact(url, text):
    assert conninfo.redact(url) == text


def test_a_url_that_cannot_be_read_is_refused_without_its_password():
    with pytest.raises(ConfigError) as caught:
        conninfo.conninfo("postgresql://u:hunter2@h/d?no_such=1&password=hunter3")
    shown = str(caught.value) + repr(caught.value.__cause__) + str(caught.value.__suppress_context__)
    assert "hunter" not in shown
    assert "percent-encode" in shown
    assert shown.endswith("True")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://u:pw@h/d", "u@h:5432/d"),
        ("postgresql://u:pw@[::1]:1/d", "u@[::1]:1/d"),
        ("postgresql://u@/d?host=/tmp/x&port=7", "u@/tmp/x:7/d"),
        ("postgresql://h/d", "h:5432/d"),
    ],
)
def test_location(url, text):
    assert conninfo.location(url) == text


def test_a_message_is_scrubbed_of_the_secrets_of_its_url():
    assert conninfo.scrub("no such host s3cret@x", URL) == "no such host ***@x"


def test_a_server_that_is_silent_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does anybody else in the process wait: every call here lets other threads run."""
    monkeypatch.setattr(conninfo, "ANSWER_S", 0.05)
    monkeypatch.setattr(conninfo, "_CANCEL_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        answered = threading.Thread(target=_greet, args=(server,), daemon=True)
        answered.start()
        pgconn = conninfo.connect_pq(f"postgresql://kuvasz@127.0.0.1:{server.getsockname()[1]}/shop?sslmode=disable")
        with pytest.raises(psycopg.OperationalError, match=r"it has not answered for 0\.05 s"):
            conninfo.execute(pgconn, "SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            conninfo.cancel(pgconn)
        pgconn.finish()


def _greet(server: socket.socket) -> None:
    """Let a session in, and say nothing more (manual, section 54.7 "Message Formats")."""
    session, _ = server.accept()
    session.recv(1024)
    parameters = b"".join(_message(b"S", f"{name}\0{value}\0".encode()) for name, value in _FACTS.items())
    session.sendall(_message(b"R", bytes(4)) + parameters + _message(b"K", bytes(8)) + _message(b"Z", b"I"))
    while session.recv(1024):
        pass


_FACTS = {"server_version": "16.1", "client_encoding": "UTF8", "standard_conforming_strings": "on"}


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    ("url", "secrets", "written"),
    [
        ("postgresql://u@h/d", {}, "postgresql://u@h/d"),
        ("postgresql://u:p%40w@h:1,i:2/d?sslmode=require", {"password": "p@w"}, "postgresql://u:<password>@h:1,i:2/d?sslmode=require"),
        ("host=/tmp user='a b' password=x dbname=d/e", {"password": "x"}, "postgresql://a%20b:<password>@%2Ftmp/d%2Fe"),
        (
            "postgresql:///d?sslpassword=y&options=-c%20a%3Db&replication=database", {"sslpassword": "y"},
            "postgresql:///d?options=-c%20a%3Db&sslpassword=<sslpassword>",
        ),
    ],
)  # fmt: skip
def test_secrets_of_a_url_have_a_reference_in_their_place(url, secrets, written):
    assert conninfo.secrets_of(url) == secrets
    assert conninfo.with_references(url, {name: f"<{name}>" for name in secrets}) == written


def test_a_url_without_its_secrets_leads_to_the_same_server():
    url = "host=/tmp user='a b' password=x dbname=d/e options='-c a=b'"
    written = conninfo.with_references(url, {"password": "x"})
    assert conninfo.conninfo(written) == conninfo.conninfo(url)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("postgresql://s", {"user": "u", "password": "p", "host": "s", "dbname": "d", "sslmode": "require"}),
        ("postgresql://s:6/", {"user": "u", "password": "p", "host": "s", "port": "6", "dbname": "d"}),
        ("postgresql://r:q@s?sslmode=disable", {"user": "r", "password": "q", "host": "s", "sslmode": "disable"}),
        ("postgresql://r@s", {"user": "r", "password": None, "host": "s"}),
        ("postgresql://s,t", {"host": "s,t", "target_session_attrs": "prefer-standby"}),
        ("postgresql://s,t?target_session_attrs=any", {"target_session_attrs": "any"}),
        ("postgresql:///?application_name=x", {"host": "h,i", "port": "5433,5434", "application_name": "x"}),
    ],
)
def test_what_the_url_of_a_standby_leaves_out_is_as_in_the_sources(
    other: str, expected: dict[str, str | None]
) -> None:
    """But a port is of its host, and a password of its user."""
    url = "postgresql://u:p@h:5433,i:5434/d?sslmode=require&target_session_attrs=read-write"
    found = conninfo_to_dict(conninfo.overlaid(url, other))
    assert {name: found.get(name) for name in expected} == expected
    if "host" in expected and expected["host"] != "h,i":
        assert found.get("target_session_attrs") in {None, "prefer-standby"}
        assert (found.get("port") or "").strip(",") == expected.get("port", "")
