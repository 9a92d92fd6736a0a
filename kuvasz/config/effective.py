"""The configuration as it came out: every option with its value and where that is from, secrets hidden."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from kuvasz.config import problem, secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ruamel.yaml.nodes import ScalarNode

    from kuvasz.config.load import Loaded
    from kuvasz.config.problem import Path


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its path, its value as it may be shown, and where it was written."""

    path: str
    value: object
    origin: str


def options(loaded: Loaded) -> list[Option]:
    """Return one row for each option; of databases and tables only what the map says."""
    return [
        Option(path=problem.render_path(path), value=value, origin=loaded.origin_of(path))
        for path, value in _leaves(values(loaded), ())
    ]


def values(loaded: Loaded) -> dict[str, Any]:
    """Return the options as nested plain values, ready for JSON."""
    config = loaded.config
    plain = config.model_dump(mode="json", exclude={"databases"})
    chosen = config.model_dump(mode="json", exclude_unset=True, include={"databases"})
    redact = secrets.Redactor(loaded.secrets)
    return {name: _shown(value, name, redact) for name, value in {**plain, **chosen}.items()}


def yaml(loaded: Loaded) -> str:
    """Return the options as YAML, each value with its origin as a comment."""
    stream = io.StringIO()
    writer = YAML(typ="rt")
    writer.width = 10_000
    writer.representer.add_representer(type(None), _represent_nothing)
    writer.dump(_commented(values(loaded), (), loaded), stream)
    return stream.getvalue()


def _shown(value: object, name: str, redact: secrets.Redactor) -> object:
    if isinstance(value, dict):
        return {key: _shown(entry, str(key), redact) for key, entry in value.items()}
    if isinstance(value, list):
        return [_shown(entry, name, redact) for entry in value]
    value = secrets.shown(name, value)
    return redact(value) if isinstance(value, str) else value


def _leaves(value: object, path: Path) -> Iterator[tuple[Path, object]]:
    if isinstance(value, dict | list) and value:
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            yield from _leaves(entry, (*path, key))
    else:
        yield path, value


def _commented(value: object, path: Path, loaded: Loaded) -> object:
    """Return the value in ruamel's classes, which carry comments."""
    if isinstance(value, dict) and value:
        mapping = CommentedMap()
        for key, entry in value.items():
            mapping[key] = _commented(entry, (*path, key), loaded)
            _comment(mapping, key, entry, loaded.origin_of((*path, key)))
        return mapping
    if isinstance(value, list) and value:
        sequence = CommentedSeq()
        for number, entry in enumerate(value):
            sequence.append(_commented(entry, (*path, number), loaded))
            _comment(sequence, number, entry, loaded.origin_of((*path, number)))
        return sequence
    return value


def _comment(holder: CommentedMap | CommentedSeq, key: object, entry: object, origin: str) -> None:
    if not isinstance(entry, dict | list) or not entry:
        holder.yaml_add_eol_comment(origin, key)


def _represent_nothing(representer: Any, _: None) -> ScalarNode:  # noqa: ANN401 -- ruamel's own is untyped
    node: ScalarNode = representer.represent_scalar("tag:yaml.org,2002:null", "null")
    return node
