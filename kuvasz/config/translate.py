"""From pydantic's errors to problems in our own words, with a guess at what was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kuvasz.config import secrets
from kuvasz.config.model import (
    SECTIONS,
    Config,
    DatabaseConfig,
    RouteConfig,
    Section,
    TableConfig,
    TableMaintenanceConfig,
    TlsConfig,
    TokenConfig,
    UrlConfig,
    WebhookConfig,
)
from kuvasz.config.problem import Path, Problem, listed, quoted_words, suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_WANTED = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping (key: value)",
    "model_type": "must be a mapping (key: value)",
    "model_attributes_type": "must be a mapping (key: value)",
}


def problems(error: ValidationError) -> list[Problem]:
    """Return one problem for each of the error's entries."""
    # A default that another option gives cannot be made when that one is wrong, which is told beside it.
    entries = error.errors(include_url=False)
    return [_problem(entry) for entry in entries if entry["type"] != "default_factory_not_called"]


def _problem(entry: ErrorDetails) -> Problem:
    path: Path = tuple(part for part in entry["loc"] if part != "[key]")
    kind, value = entry["type"], entry["input"]
    if kind == "extra_forbidden":
        return Problem(path=path, message=_unknown(path), is_key=True)
    if kind == "missing":
        return Problem(path=path[:-1], message=f"the key {path[-1]!r} is missing", is_key=True)
    if kind == "value_error":
        # The sentence is our own, from kuvasz.config.kinds: pydantic puts "Value error, " before it.
        return Problem(path=path, message=str(entry["ctx"]["error"]))
    if kind == "enum":
        words = quoted_words(entry["ctx"]["expected"])
        guess = suggestion(value, words) if isinstance(value, str) else ""
        return Problem(path=path, message=f"must be {listed(words)}, not {shown(path, value)}{guess}")
    wanted = _WANTED.get(kind, entry["msg"].lower())
    return Problem(path=path, message=f"{wanted}, not {shown(path, value)}{_advice(kind, value)}")


def shown(path: Path, value: object) -> str:
    """Return a wrong value as a message may show it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    is_hidden = isinstance(value, str) and (name in {"url", "urls", "uri", "replication_url"} or "://" in value)
    if is_hidden or secrets.is_secret_name(name):
        return "what is given (not shown: it may hold a password)"
    return repr(value) if isinstance(value, str) else str(getattr(value, "text", value))


def section_at(path: Path) -> type[Section] | None:
    """Return the class of the section at a path; None where keys are free."""
    match path:
        case () | (str(),):
            return SECTIONS.get(str(path[0])) if path else Config
        case ("server", "tls") | ("server", "tokens", int()):
            return TlsConfig if path[1] == "tls" else TokenConfig
        case ("notify", int()):
            return WebhookConfig
        case ("databases", int(), *below):
            return _in_database(tuple(below))
    return None


def _in_database(path: Path) -> type[Section] | None:
    match path:
        case ():
            return DatabaseConfig
        case ("urls", int()):
            return UrlConfig
        case ("tables", str()):
            return TableConfig
        case ("tables", str(), "maintenance"):
            return TableMaintenanceConfig
        case ("tables", str(), "route"):
            return RouteConfig
    return None


def _unknown(path: Path) -> str:
    key = str(path[-1])
    section = section_at(path[:-1])
    guess = suggestion(key, section.options()) if section else ""
    homes = [name for name, home in _homes().items() if key in home.options()]
    if homes and not guess:
        guess = f": it belongs to {homes[0]}"
    return f"unknown key {key!r}{guess or _choice(section)}"


def _homes() -> Mapping[str, type[Section]]:
    return {
        **SECTIONS,
        "a database": DatabaseConfig,
        "an entry of urls": UrlConfig,
        "a table": TableConfig,
        "server.tls": TlsConfig,
        "an entry of server.tokens": TokenConfig,
        "an entry of notify": WebhookConfig,
        "maintenance of a table": TableMaintenanceConfig,
        "route of a table": RouteConfig,
    }


def _choice(section: type[Section] | None) -> str:
    return f": known are {', '.join(section.options())}" if section else ""


def _advice(kind: str, value: object) -> str:
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f": put it in quotes, '{_written(value)}'"
    if kind in {"tuple_type", "list_type"} and isinstance(value, str) and "://" not in value:
        return f": write [{value}]"
    return ""


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(getattr(value, "text", value))
