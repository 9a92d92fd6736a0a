from __future__ import annotations

import io
import logging
import pickle
import re
import shlex
import string
import sys
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.config import secrets
from kuvasz.config.secrets import (
    _COMMON,
    LiveTexts,
    SecretCommand,
    SecretFile,
    SecretFilter,
    SecretText,
    SecretUrl,
)
from kuvasz.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "redacted"),
    [
        ("postgresql://repl:geheim@eu1/shop", "postgresql://repl:***@eu1/shop"),
        ("postgresql://repl:ge@heim@eu1/shop", "postgresql://repl:***@eu1/shop"),
        ("postgresql://repl:ge/heim@eu1/shop", "postgresql://repl:***@eu1/shop"),
        ("postgresql://repl@eu1/shop", "postgresql://repl@eu1/shop"),
        ("postgresql://repl@eu1/shop?password=geheim&sslmode=require",
         "postgresql://repl@eu1/shop?password=***&sslmode=require"),
        ("postgresql://eu1/shop?sslpassword=geheim", "postgresql://eu1/shop?sslpassword=***"),
        ("postgresql://repl:geheim@h1:1,h2:2/shop?options=-c%20a=b", "postgresql://repl:***@h1:1,h2:2/shop?options=-c%20a=b"),
        ("host=eu1 password=geheim dbname=shop", "host=eu1 password=*** dbname=shop"),
        ("host=eu1 password='ge heim' dbname=shop", "host=eu1 password=*** dbname=shop"),
        ("jdbc:postgresql://h/db?user=u&password=geheim", "jdbc:postgresql://h/db?user=u&password=***"),
        ("postgresql://[::1]:5432/shop failed at 10:30", "postgresql://[::1]:5432/shop failed at 10:30"),
    ],
)  # fmt: skip
def test_a_url_is_shown_without_its_password(url: str, redacted: str) -> None:
    assert secrets.redact_url(url) == redacted


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.text(string.printable, min_size=8))
def test_any_encoded_password_is_hidden(password: str) -> None:
    encoded = urllib.parse.quote(password, safe="")
    url = f"postgresql://repl:{encoded}@eu1:5432/shop?sslmode=require&sslpassword={encoded}"
    shown = "postgresql://repl:***@eu1:5432/shop?sslmode=require&sslpassword=***"
    assert str(SecretUrl(url)) == shown
    assert repr(SecretUrl(url)) == f"SecretUrl('{shown}')"
    assert {password, encoded} <= secrets.url_secrets(url)


def test_a_secret_url_gives_its_password_only_when_asked() -> None:
    url = SecretUrl("postgresql://repl:geheim@eu1/shop")
    assert url.get() == "postgresql://repl:geheim@eu1/shop"
    assert "geheim" not in f"{url} {url!r} {[url]} {url:}"
    assert pickle.loads(pickle.dumps(url)) == url
    assert hash(url) == hash(SecretUrl("postgresql://repl:geheim@eu1/shop"))
    assert url != SecretUrl("postgresql://repl:other@eu1/shop")


def test_a_secret_text_shows_nothing_of_itself() -> None:
    text = SecretText("geheim")
    assert (text.get(), f"{text} {text!r}") == ("geheim", "*** SecretText('***')")
    assert pickle.loads(pickle.dumps(text)) == text
    assert text != SecretUrl("geheim")


def test_a_file_is_read_at_each_use(tmp_path: Path) -> None:
    file = tmp_path / "password"
    url = SecretUrl("postgresql://repl:", SecretFile(str(file), is_quoted=True), "@eu1/shop")
    file.write_text("a/b\n")
    assert url.get() == "postgresql://repl:a%2Fb@eu1/shop"
    file.write_text("new")
    assert url.get() == "postgresql://repl:new@eu1/shop"
    assert str(url) == "postgresql://repl:***@eu1/shop"


def test_a_file_that_cannot_be_read_is_named_with_its_place() -> None:
    with pytest.raises(ConfigError) as caught:
        SecretFile("/run/secrets/none", "map.yaml:3:4").read()
    assert str(caught.value) == (
        "map.yaml:3:4: cannot read the file '/run/secrets/none': no such file or directory\n"
        "hint: mount the secret there, or correct the path in ${file:…}"
    )


def test_a_command_is_run_at_a_use_and_not_at_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = tmp_path / "count"
    script = f"from pathlib import Path; p = Path('{count}'); p.open('a').write('x'); print('a/b' + p.read_text())"
    command = SecretCommand(shlex.join([sys.executable, "-c", script]), is_quoted=True)
    url = SecretUrl("postgresql://repl:", command, "@eu1/shop")
    assert url.get() == url.get() == "postgresql://repl:a%2Fbx@eu1/shop"
    assert str(url) == "postgresql://repl:***@eu1/shop"
    assert pickle.loads(pickle.dumps(url)) == url
    monkeypatch.setattr(secrets, "_SAID_S", 0.0)
    assert url.get() == "postgresql://repl:a%2Fbxx@eu1/shop"


def test_of_many_that_want_what_a_command_prints_one_runs_it(tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f"from pathlib import Path; p = Path('{count}'); p.open('a').write('x'); print(p.read_text())"
    command = SecretCommand(shlex.join([sys.executable, "-c", script]))
    with ThreadPoolExecutor(8) as pool:
        assert {one.result() for one in [pool.submit(command.read) for _ in range(8)]} == {"x"}


def test_of_many_that_want_what_a_failing_command_prints_one_runs_it(tmp_path: Path) -> None:
    """One that hangs would keep the last of many waiting for all before it."""
    count = tmp_path / "count"
    script = f"from pathlib import Path; Path('{count}').open('a').write('x'); raise SystemExit('not now')"
    command = SecretCommand(shlex.join([sys.executable, "-c", script]))
    with ThreadPoolExecutor(8) as pool:
        why = {str(one.exception()) for one in [pool.submit(command.read) for _ in range(8)]}
    assert len(why) == 1
    assert "it ended with 1: not now" in why.pop()
    assert count.read_text() == "x"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/none/such --flag", "the command '/none/such' gives no secret: no such file or directory"),
        (shlex.join([sys.executable, "-c", "import sys; print('geheim'); sys.exit('not logged in')"]),
         f"the command {sys.executable!r} gives no secret: it ended with 1: not logged in"),
        (shlex.join([sys.executable, "-c", "import time; time.sleep(60)"]),
         f"the command {sys.executable!r} gives no secret: it did not end within 1 s"),
        ("", "the command '' gives no secret: it is no command"),
        ("'", "the command \"'\" gives no secret: it is no command"),
    ],
)  # fmt: skip
def test_a_command_that_fails_is_named_with_its_place_and_not_what_it_printed(
    command: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_PATIENCE_S", 1.0)
    with pytest.raises(ConfigError) as caught:
        SecretCommand(command, "map.yaml:3:4").read()
    assert str(caught.value) == f"map.yaml:3:4: {said}\nhint: see what it says by itself, and correct ${{exec:…}}"


@pytest.mark.parametrize(
    "name",
    ["password", "jdbc.password", "s3.secret-access-key", "s3.access-key-id", "token", "credential",
     "client_secret", "adls.account-key", "EU_PW", "DB_PASS", "sas-token", "spark.hadoop.fs.s3a.secret.key",
     "PGPASSWORD", "header.Authorization", "s3.sse.key", "adls.connection-string.shop", "io.encryption-key",
     "kafka.sasl.jaas.config"],
)  # fmt: skip
def test_names_of_secrets_are_known(name: str) -> None:
    assert secrets.is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["uri", "s3.endpoint", "jdbc.user", "key", "compass", "warehouse", "client.region", "assess.key"]
)
def test_other_names_are_not(name: str) -> None:
    assert not secrets.is_secret_name(name)


def test_known_secrets_are_replaced_wherever_they_stand() -> None:
    assert secrets.redact("got geheim2, not geheim", ["geheim", "geheim2", ""]) == "got ***, not ***"


def test_a_long_secret_is_replaced_within_words_too() -> None:
    assert secrets.redact("x%40Geheim7Geheim7y", ["Geheim7"]) == "x%40******y"


def test_a_common_word_is_replaced_only_where_it_stands_alone() -> None:
    text = "postgresql://postgres:postgres@h/d says postgres"
    assert secrets.redact(text, ["postgres"]) == "postgresql://***:***@h/d says ***"


def test_a_secret_that_could_be_a_name_leaves_longer_names_alone() -> None:
    text = "slot kuvasz_shop_eu of shop_eu, with shop_eu"
    assert secrets.redact(text, ["shop_eu"]) == "slot kuvasz_shop_eu of ***, with ***"


def test_a_short_secret_is_replaced_only_where_it_stands_alone() -> None:
    assert secrets.redact("a table says a, not ab", ["a"]) == "*** table says ***, not ab"


@given(st.sets(st.text("ab_#1", min_size=1, max_size=8), min_size=1, max_size=12), st.text("ab_#1 ", max_size=40))
def test_of_many_secrets_the_longest_is_replaced(values: set[str], text: str) -> None:
    patterns = (rf"(?<!\w){re.escape(value)}(?!\w)" if _COMMON.fullmatch(value) else re.escape(value)
                for value in sorted(values, key=len, reverse=True))  # fmt: skip
    assert secrets.redact(text, values) == re.sub("|".join(patterns), secrets.HIDDEN, text)


def logged(log: logging.Logger) -> io.StringIO:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(message)s|%(place)s|%(facts)s", defaults={"place": "", "facts": ""}))
    handler.addFilter(SecretFilter({"geheim"}))
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.DEBUG)
    return stream


class Odd:
    def __str__(self) -> str:
        return "odd geheim"


def test_no_part_of_a_log_record_keeps_a_secret() -> None:
    log = logging.getLogger("tests.secrets")
    stream = logged(log)
    try:
        msg = "cannot connect to postgresql://u:andere@h/d with geheim"
        raise RuntimeError(msg)
    except RuntimeError:
        log.exception(
            "tried %s and %s", "geheim", SecretUrl("postgresql://u:dritte@h/d"), stack_info=True,
            extra={"place": "at geheim", "facts": {"geheim": ["geheim", 1, None, Odd()]}},
        )  # fmt: skip
    text = stream.getvalue()
    assert "RuntimeError: cannot connect to postgresql://u:***@h/d with ***" in text
    assert "tried *** and postgresql://u:***@h/d|at ***|{'***': ['***', 1, None, 'odd ***']}" in text
    # The stack quotes source lines as well, and those above hold the secrets as literals.
    for secret in ("geheim", "andere", "dritte"):
        assert secret not in text


def test_exceptions_in_extra_formatters_have_nothing_left_to_print() -> None:
    try:
        raise ValueError("geheim")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    assert SecretFilter(["geheim"]).filter(record)
    assert record.exc_info is None
    assert record.exc_text is not None
    assert "ValueError: ***" in record.exc_text
    assert "geheim" not in record.exc_text


def test_a_wrong_format_string_loses_neither_record_nor_secret() -> None:
    log = logging.getLogger("tests.secrets.format")
    stream = logged(log)
    log.warning("one %s two %s", "geheim")  # noqa: PLE1206
    assert stream.getvalue() == "one %s two %s ('***',)||\n"


def test_more_secrets_are_hidden_when_they_are_learned() -> None:
    redact = secrets.Redactor({"first-secret"})
    redact.learn({"second-secret", "", secrets.HIDDEN})
    assert redact("first-secret second-secret") == "*** ***"


def test_a_file_is_the_same_wherever_the_map_names_it() -> None:
    one, same, other = (
        SecretUrl("a", SecretFile(path, place)) for path, place in (("f", "1"), ("f", "2"), ("g", "1"))
    )
    assert one == same
    assert one != other


@pytest.mark.parametrize("name", ["oauth_client_secret", "scram_client_key", "scram_server_key", "sslpassword"])
def test_whatever_of_libpqs_parameters_lets_somebody_in_is_hidden(name: str) -> None:
    """All that `kuvasz.source.conninfo` takes for secret."""
    url = f"postgresql://ann@eu1/shop?{name}=Geheim+1&sslmode=require"
    assert secrets.redact_url(url) == f"postgresql://ann@eu1/shop?{name}=***&sslmode=require"
    assert secrets.url_secrets(url) == {"Geheim+1"}
    assert secrets.redact(f"host=eu1 {name}='Geheim 1' user=ann") == f"host=eu1 {name}=*** user=ann"


def test_texts_that_are_asked_for_are_those_of_now(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("old\n")
    found = LiveTexts({"user": "ann", "key": "as it was read"}, {"key": SecretText(SecretFile(str(file)))})
    assert dict(found) == found.now() == {"user": "ann", "key": "old"}
    file.write_text("new\n")
    assert (found["key"], found.get("user"), found.get("other"), len(found)) == ("new", "ann", None, 2)
    file.unlink()  # while somebody puts another one in its place
    assert found.now() == {"user": "ann", "key": "new"}
    sent = pickle.loads(pickle.dumps(found))
    assert (type(sent), sent) == (dict, {"user": "ann", "key": "new"})
    assert "new" not in f"{found} {found!r}"
