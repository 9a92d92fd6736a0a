"""Options from the environment, ``KUVASZ_SECTION__OPTION``, and from flags, ``--set section.option=value``.

A name that begins with ``KUVASZ_`` and is none of ours is refused: a misspelt option would silently do nothing.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from kuvasz.config.model import SECTIONS
from kuvasz.config.problem import OptionOrigin, Path, Problem, suggestion

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PREFIX = "KUVASZ_"

#: Names that are not options: the map's path, named crash points for tests, the account of embedded servers.
OTHER_NAMES = frozenset({"KUVASZ_CONFIG", "KUVASZ_FAILPOINTS", "KUVASZ_POSTGRES_ACCOUNT"})

#: Kubernetes tells every pod of every service in its namespace, so a service called kuvasz speaks our prefix
#: (Kubernetes documentation, "Service", section "Environment variables").
_SERVICE = re.compile(
    r"KUVASZ_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://\S+:\d+")

#: Options whose keys are free: the rest of a flag's path is one key, dots and all.
_MAPPINGS: frozenset[Path] = frozenset({("lake", "properties"), ("spark", "conf")})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One option's value from outside the file."""

    path: Path
    value: object = dataclasses.field(repr=False)
    origin: OptionOrigin


def options() -> dict[str, Path]:
    """Return every environment variable that is an option, with its path."""
    named: dict[str, Path] = {"KUVASZ_DATABASES": ("databases",)}
    for section, model in SECTIONS.items():
        named |= {f"{PREFIX}{section}__{option}".upper(): (section, option) for option in model.options()}
    return named


def from_environment(
    environ: Mapping[str, str], *, referenced: Collection[str] = ()
) -> tuple[list[Setting], list[Problem]]:
    """Return the options that the environment sets, and the names it has wrong.

    Args:
        environ: An empty value counts as unset, as it does where compose files pass variables through.
        referenced: Variables that the map names in ``${…}``: they may be called anything.
    """
    known = options()
    settings: list[Setting] = []
    problems: list[Problem] = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in OTHER_NAMES or name in referenced or _is_service(name, environ):
            continue
        origin = OptionOrigin(value=f"environment {name}", key=f"environment {name}")
        if name not in known:
            guess = _suggestion(name, [*known, *OTHER_NAMES]) or ": options are written KUVASZ_SECTION__OPTION"
            problems.append(Problem(path=(), message=f"unknown option{guess}", origin=origin))
        elif environ[name]:
            settings.append(Setting(path=known[name], value=_value(environ[name]), origin=origin))
    return settings, problems


def from_flags(overrides: Mapping[str, str]) -> tuple[list[Setting], list[Problem]]:
    """Return the options that flags set, and the names they have wrong.

    Args:
        overrides: Option's path, such as ``pipeline.workers`` or ``spark.conf.spark.executor.memory`` -> value.
    """
    known = {".".join(map(str, path)): path for path in options().values()}
    settings: list[Setting] = []
    problems: list[Problem] = []
    for name, text in overrides.items():
        origin = OptionOrigin(value=f"flag --set {name}", key=f"flag --set {name}", order=(2, 0, 0))
        path = known.get(name) or _mapping_entry(name)
        if path is None:
            guess = suggestion(name, known) or ": an option is written section.option=value"
            problems.append(Problem(path=(), message=f"unknown option{guess}", origin=origin))
        else:
            value = text if len(path) > 2 else _value(text)
            settings.append(Setting(path=path, value=value, origin=dataclasses.replace(origin, value="flag")))
    return settings, problems


def _suggestion(name: str, known: Collection[str]) -> str:
    """Compare without the prefix, which would make all names alike."""
    rest = {option.removeprefix(PREFIX): option for option in known}
    guess = suggestion(name.removeprefix(PREFIX), rest)
    return guess.replace("'", f"'{PREFIX}", 1)


def _mapping_entry(name: str) -> Path | None:
    section, _, rest = name.partition(".")
    option, _, key = rest.partition(".")
    return (section, option, key) if key and (section, option) in _MAPPINGS else None


def _is_service(name: str, environ: Mapping[str, str]) -> bool:
    is_url = name.endswith("_PORT") and _SERVICE_URL.fullmatch(environ[name]) is not None
    return "__" not in name and (is_url or _SERVICE.fullmatch(name) is not None)


def _value(text: str) -> object:
    """Return what a text means: ``null``, a mapping or list in YAML's flow form, else the text itself."""
    if text.strip() in {"null", "~"}:
        return None
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return YAML(typ="safe", pure=True).load(text)
        except YAMLError:
            return text
    return text
