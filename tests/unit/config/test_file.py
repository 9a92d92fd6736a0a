from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuvasz.config import file
from kuvasz.config.written.map_file import MapFile
from kuvasz.errors import ConfigError


def parse(text: str) -> file.Document:
    return file.parse(text, name="map.yaml")


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.exit_code == 2
    return caught.value.message


def told(text: str) -> list[str]:
    return [f"{p.origin.value}: {p.message}" for p in parse(text).problems if p.origin]


def test_values_have_their_types_and_numbers_their_text() -> None:
    value = parse(
        "{a: 1, b: 007, c: 1.10, d: true, e: null, f: no, g: 2024-01-01, h: 0x10, i: '5', j: [x], k: .inf}"
    ).value
    assert value == {
        "a": 1, "b": 7, "c": 1.1, "d": True, "e": None, "f": "no", "g": "2024-01-01", "h": 16, "i": "5",
        "j": ["x"], "k": float("inf"),
    }  # fmt: skip
    assert (value["b"].text, value["c"].text, value["h"].text) == ("007", "1.10", "0x10")


def test_keys_are_names_whatever_yaml_takes_them_for() -> None:
    assert list(parse("{2024: , null: , 007: , yes: , 1.10: }").value) == ["2024", "null", "007", "yes", "1.10"]


def test_every_key_and_entry_has_its_place() -> None:
    origins = parse("# first\nlake:\n  type: jdbc\nlist:\n- {a: x}\n- y\nempty:\nnext: 1\n").origins
    places = {path: (origin.key, origin.value) for path, origin in origins.items()}
    assert places == {
        (): ("map.yaml:1:1", "map.yaml:1:1"),
        ("lake",): ("map.yaml:2:1", "map.yaml:3:3"),
        ("lake", "type"): ("map.yaml:3:3", "map.yaml:3:9"),
        ("list",): ("map.yaml:4:1", "map.yaml:5:1"),
        ("list", 0): ("map.yaml:5:3", "map.yaml:5:3"),
        ("list", 0, "a"): ("map.yaml:5:4", "map.yaml:5:7"),
        ("list", 1): ("map.yaml:6:3", "map.yaml:6:3"),
        ("empty",): ("map.yaml:7:1", "map.yaml:7:1"),
        ("next",): ("map.yaml:8:1", "map.yaml:8:7"),
    }


def test_a_bare_list_is_the_databases() -> None:
    document = parse("- database: shop\n")
    assert document.value == {"databases": [{"database": "shop"}]}
    assert document.origins["databases", 0, "database"].value == "map.yaml:1:13"


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_is_an_empty_mapping(text: str) -> None:
    assert parse(text).value == {}


def test_aliases_and_merge_keys_work() -> None:
    value = parse("a: &x {b: 1, c: 2}\nd: *x\ne: {<<: *x, c: 3}\nf: {<<: [{g: 1}, {g: 2, h: 3}]}\n").value
    assert value["d"] == {"b": 1, "c": 2}
    assert value["e"] == {"b": 1, "c": 3}
    assert value["f"] == {"g": 1, "h": 3}


def test_a_duplicate_key_is_told_with_its_place() -> None:
    text = "lake: {type: jdbc}\npipeline: {}\nlake:\n  type: rest\n"
    assert told(text) == ["map.yaml:3:1: duplicate key 'lake', first given in line 1"]
    assert told("a: {b: 1, b: 2, b: 3}") == [
        "map.yaml:1:11: duplicate key 'b', first given in line 1",
        "map.yaml:1:17: duplicate key 'b', first given in line 1",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: !secret b", "map.yaml:1:4: has the unknown tag '!secret'"),
        ("? [a]\n: b", "map.yaml:1:3: has a key that is not a name"),
        ("a: &x [*x]", "map.yaml:1:4: contains itself through an alias"),
        ("a: {<<: b}", "map.yaml:1:9: '<<' must name a mapping"),
    ],
)
def test_what_yaml_allows_and_a_map_does_not_is_told(text: str, problem: str) -> None:
    assert told(text) == [problem]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "map.yaml:1:6: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: b: c", "map.yaml:1:5: not valid YAML: mapping values are not allowed here"),
        ("a:\n\t- b", "map.yaml:2:1: not valid YAML: found character '\\t' that cannot start any token"),
        ("a: 1\n---\nb: 2", "map.yaml:2:1: not valid YAML: but found another document"),
        ("a: *x", "map.yaml:1:4: not valid YAML: found undefined alias 'x'"),
        ("just text", "map.yaml:1:1: the map must be a mapping of sections, or a list of databases"),
        ("[" * 500, "map.yaml: not a usable map: nested too deeply"),
    ],
)
def test_what_is_no_yaml_is_refused_with_its_place(text: str, message: str) -> None:
    assert refused(text) == message


def test_a_reference_without_quotes_inside_braces_is_explained() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("pipeline: {workers: ${WORKERS}}")
    assert str(caught.value) == (
        "map.yaml:1:22: not valid YAML: expected ',' or '}', but got '{'\n"
        'hint: between { and }, a value with ${…} needs quotes: {key: "${VAR}"}'
    )


def test_a_syntax_error_does_not_quote_the_line() -> None:
    assert "geheim" not in refused('url: "postgresql://u:geheim@h/d"": x')


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        file.read(MapFile(tmp_path / "none.yaml"))
    assert str(caught.value) == (
        f"cannot read the map '{tmp_path}/none.yaml': no such file or directory\n"
        "hint: name the file with --config or KUVASZ_CONFIG"
    )


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="byte 3 is not UTF-8"):
        file.read(MapFile(tmp_path / "map.yaml"))


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_bytes(b"\xef\xbb\xbflake: {}\n")
    assert file.read(MapFile(tmp_path / "map.yaml")).value == {"lake": {}}


@settings(deadline=None)  # a busy machine is no fault of ours
@given(st.text(st.sampled_from("ab:-[]{},&*!<\"'#|> \n\t?~01."), max_size=40))
def test_any_text_is_a_document_or_a_config_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(parse(text).value, dict)


def test_escapes_of_json_for_one_character_are_joined() -> None:
    text = json.dumps({"a \U0001f600": {"filter": "kind = '\U0001f600'", "list": ["\U0001f600"]}})
    assert "\\ud83d\\ude00" in text
    assert parse(text).value == {"a \U0001f600": {"filter": "kind = '\U0001f600'", "list": ["\U0001f600"]}}


def test_half_a_character_is_told() -> None:
    assert told('a: {b: "x\\ud83d", "\\ude00": 1}') == [
        "map.yaml:1:19: has one half of a surrogate pair, which is no character",
        "map.yaml:1:8: has one half of a surrogate pair, which is no character",
    ]
