from __future__ import annotations

import json
import typing
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from kuvasz.config import reference

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "configuration.md"


def test_the_page_says_what_the_model_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == reference.page(text), "run: python -m kuvasz.config.reference"


def test_every_option_is_explained() -> None:
    for name, model in reference.TABLES.items():
        told = reference.meanings(model)
        for option in model.options():
            assert told.get(option), f"{name}: {option}"
            assert f"| `{option}`" in reference.table(name)


def test_an_option_is_called_what_the_model_takes() -> None:
    """Of those that a person would type wrongly: whether something is so, and where something is."""
    for name, model in reference.TABLES.items():
        for option, field in model.options().items():
            kind = reference._kind(field)
            takes = {*(typing.get_args(field.annotation) or [field.annotation])} - {type(None)}
            assert (kind == "`true` \\| `false`") is (takes == {bool}), f"{name}: {option} is called {kind}"
            assert kind != "url" or "SecretUrl" in str(field.annotation) or option == "url", f"{name}: {option}"


def test_the_schema_file_is_the_schema() -> None:
    assert (ROOT / "config" / "map.schema.json").read_text(encoding="utf-8") == reference.schema_text()


def test_the_schema_takes_what_the_model_takes() -> None:
    schema = reference.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    value = YAML(typ="safe", pure=True).load(ROOT / "config" / "map.yaml")
    jsonschema.validate(value, schema)
    jsonschema.validate(value["databases"], schema)
    value["databases"][0]["tables"]["orders"] = {"out_of_range": None, "type": "history"}
    value["pipeline"] = {"workers": "${WORKERS}", "memory": 5}
    value["spark"] = None
    jsonschema.validate(value, schema)


@pytest.mark.parametrize(
    "wrong", [{}, {"databases": [], "x": 1}, [], [{"database": "a"}], {"databases": [{"tables": 5}]}]
)
def test_the_schema_refuses_what_the_model_refuses(wrong: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, reference.json_schema())


def test_the_schema_names_durations_and_sizes_as_people_write_them() -> None:
    pipeline = reference.json_schema()["$defs"]["PipelineConfig"]["properties"]
    assert (pipeline["commit_interval"]["default"], pipeline["memory"]["default"]) == ("1s", "1GB")
    assert json.loads(reference.schema_text()) == reference.json_schema()
