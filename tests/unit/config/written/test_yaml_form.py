from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from kuvasz.config.written import yaml_form


@pytest.mark.parametrize("word", ["shop", "a.b", "fact_orders", "s-3/x"])
def test_names_are_written_as_a_person_would(word: str) -> None:
    assert yaml_form.text(word, is_json=False) == word


@pytest.mark.parametrize(
    "word", ["", "on", "No", "null", "12", "1.10", "a: b", "a #b", "- a", "*a", "a.", "a b", "~"]
)
def test_what_may_be_taken_for_something_else_is_quoted(word: str) -> None:
    assert yaml_form.text(word, is_json=False) == json.dumps(word)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.text(st.characters(exclude_categories=["Cs"])) | st.none(),
    )
)
def test_what_is_written_on_one_line_is_read_back(value: dict[str, str | None]) -> None:
    said = yaml_form.flow(value, is_json=True)
    assert json.loads(said) == value
    assert "\n" not in said


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text(st.characters(exclude_categories=["Cs"])) | st.none()
    )
)
@example({"a": "\U0010ffff\x7f\x85\ufeff"})
def test_yaml_is_read_back(value: dict[str, str | None]) -> None:
    said = yaml_form.flow(value, is_json=False)
    assert YAML(typ="safe", pure=True).load(said) == value
    assert yaml.safe_load(said) == value, "what others read YAML with"
