from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.config import template
from kuvasz.config.secrets import SecretUrl
from kuvasz.errors import ConfigError

ENVIRON = {
    "HOST": "eu1",
    "EMPTY": "",
    "EU_PW": "p@ss/w:rd?%",
    "USER_PW": "repl:simple",
    "URL": "postgresql://u:p@h/d",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("${HOST}", "eu1"),
        ("${env:HOST}", "eu1"),
        ("${env:NONE:-${HOST}}", "eu1"),
        ("a-${HOST}-b-${HOST}", "a-eu1-b-eu1"),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${NONE:-}", ""),
        ("${NONE:-${HOST:-y}}", "eu1"),
        ("${NONE:-${NONE2:-y}z}", "yz"),
        ("$${HOST}", "${HOST}"),
        ("$HOST $5 {x} }", "$HOST $5 {x} }"),
        ("events_\\d+$", "events_\\d+$"),
    ],
)
def test_references_are_filled(text: str, value: str) -> None:
    assert template.fill(text, ENVIRON, place="").value == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${NONE}", "the environment variable NONE is not set (a default is written ${NONE:-…})"),
        ("${env:NONE}", "the environment variable NONE is not set (a default is written ${NONE:-…})"),
        ("${HOSTT}", "the environment variable HOSTT is not set: did you mean ${HOST}?"),
        ("${HOST", "has a '${' without its '}' (write '$${' for a literal '${')"),
        ("${NONE:-x", "has a '${' without its '}' (write '$${' for a literal '${')"),
        ("${HOST-x}", "has a '${' that is neither ${VAR}, ${VAR:-default}, ${file:/path} nor ${exec:command}"
                      " (write '$${' for a literal '${')"),
        ("${}", "has a '${' that is neither ${VAR}, ${VAR:-default}, ${file:/path} nor ${exec:command}"
                " (write '$${' for a literal '${')"),
    ],
)  # fmt: skip
def test_a_wrong_reference_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 -- the whole text is asserted
        template.fill(text, ENVIRON, place="")
    assert str(caught.value) == message


def test_a_file_fills_a_value(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("geheim\r\n")
    filled = template.fill(f"a ${{file:{tmp_path}/secret}} b", {}, place="")
    assert filled.value == "a geheim b"
    assert filled.secrets == {"geheim"}
    assert "geheim" not in repr(filled)


def test_a_file_that_is_not_there_is_an_error_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^map:1:2: cannot read the file '.*/none': no such file or directory"):
        template.fill(f"${{file:{tmp_path}/none}}", {}, place="map:1:2")


def test_a_command_fills_a_url_and_a_variable_its_line() -> None:
    filled = template.fill_url("postgresql://u:${exec:printf %s@ '${WORD} two'}@h/d", {"WORD": "one"}, place="")
    assert isinstance(filled.value, SecretUrl)
    assert filled.value.get() == "postgresql://u:one%20two%40@h/d"
    assert "one two@" in filled.secrets
    assert template.variables("${exec:printf ${WORD}}") == {"WORD"}


def url(text: str) -> str:
    value = template.fill_url(text, ENVIRON, place="").value
    assert isinstance(value, SecretUrl)
    return value.get()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("postgresql://repl:${EU_PW}@eu1/shop", "postgresql://repl:p%40ss%2Fw%3Ard%3F%25@eu1/shop"),
        ("postgresql://repl@${HOST}:5432/shop", "postgresql://repl@eu1:5432/shop"),
        ("postgresql://${USER_PW}@eu1/shop", "postgresql://repl:simple@eu1/shop"),
        ("postgresql://${NONE:-repl}:${NONE:-a@b}@eu1/x", "postgresql://repl:a%40b@eu1/x"),
        (
            "postgresql://eu1/shop?password=${EU_PW}&a=b",
            "postgresql://eu1/shop?password=p%40ss%2Fw%3Ard%3F%25&a=b",
        ),
        ("postgresql://${HOST}/${NONE:-shop}", "postgresql://eu1/shop"),
        ("${URL}", "postgresql://u:p@h/d"),
        ("${NONE:-postgresql://postgres@127.0.0.1:54321/shop}", "postgresql://postgres@127.0.0.1:54321/shop"),
        ("${NONE:-postgresql://u@h/d}?sslmode=${NONE:-require}", "postgresql://u@h/d?sslmode=require"),
    ],
)
def test_a_url_is_filled_so_that_any_password_survives(text: str, value: str) -> None:
    assert url(text) == value


def test_the_passwords_of_a_url_are_known(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("ge/heim")
    filled = template.fill_url(f"postgresql://u:${{file:{tmp_path}/secret}}@h/d", {}, place="")
    assert filled.secrets == {"ge/heim", "ge%2Fheim"}
    assert "heim" not in repr(filled)
    assert str(filled.value) == "postgresql://u:***@h/d"


def test_variables_are_found_in_defaults_and_paths_too() -> None:
    assert template.variables("${A:-${B}} ${file:/x/${C}} $${D}") == {"A", "B", "C"}
    assert template.variables("${broken") == frozenset()


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.text(st.sampled_from("$${}:-AB file:/"), max_size=30))
def test_any_text_is_filled_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError, ConfigError):
        assert isinstance(template.fill(text, {"A": "1", "AB": "2"}, place="").value, str)


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.text())
def test_an_escaped_text_is_itself(text: str) -> None:
    assert template.fill(text.replace("${", "$${"), {}, place="").value == text
