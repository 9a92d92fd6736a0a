"""From a map file, the environment and flags to a checked `Config`: default < file < environment < flag.

Everything that is wrong is found before anything is told, so that one run shows all of it.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, TypeAlias

from pydantic import ValidationError

from kuvasz.config import check, environment, file, names, problem, secrets, sources, template, translate
from kuvasz.config.model import Config
from kuvasz.config.problem import OptionOrigin, Path, Problem
from kuvasz.config.secrets import SecretText
from kuvasz.config.written import relative_paths
from kuvasz.config.written.map_file import MapFile
from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kuvasz.config.environment import Setting
    from kuvasz.config.file import Document
    from kuvasz.config.template import Filled
    from kuvasz.config.written.map_store import MapStore

#: Mappings whose names are not ours.
_FREE = (("lake", "properties"), ("spark", "conf"))

#: Values that tell nothing: hidden wherever they occur, they would make every text unreadable.
_NO_SECRET = re.compile(r"(?i)|true|false|\d{1,4}[kmgtb]{0,2}")

_HINT = "docs/configuration.md explains every key; `kuvasz config --schema` prints them for editors"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration, where it is from and what of it must not be shown.

    Attributes:
        config: The checked configuration.
        origins: Option -> where it was written; an option that is not in it has its default.
        secrets: Values that are secret wherever they stand; for `secrets.SecretFilter`.
        store: Where the map is, if there was one.
        overrides: The flags that it was read with.
        digest: SHA-256 of the map's text; empty without one.
    """

    config: Config
    origins: Mapping[Path, OptionOrigin]
    secrets: frozenset[str] = dataclasses.field(repr=False)
    store: MapStore | None = None
    overrides: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    digest: str = ""

    @property
    def path(self) -> FilePath | None:
        """The map's file, if it is in one."""
        return self.store.path if isinstance(self.store, MapFile) else None

    @property
    def editable(self) -> MapStore:
        """Where the map is, and can be changed.

        Raises:
            ConfigError: Its groups are not from there.
        """
        if self.store is None:
            raise ConfigError("the map is from no file: it cannot be changed", hint="give it one with --config")
        if not self.origin_of(("databases",)).startswith(f"{self.store.place}:"):
            raise ConfigError("`databases` is not from the map's file", hint="it wins over what is in the file")
        return self.store

    @property
    def origin(self) -> dict[str, str]:
        """Option's path as text -> ``map.yaml:12:3``, ``environment KUVASZ_…`` or ``flag``."""
        return {problem.render_path(path): origin.value for path, origin in self.origins.items() if path}

    def origin_of(self, path: Path) -> str:
        """Return where an option's value is from; ``default`` if nobody wrote one."""
        origin = self.origins.get(path)
        return "default" if origin is None else origin.value

    def place_of(self, database: str, table: str, option: str) -> str:
        """Return ``map.yaml:12:3: `` of a table's option, to begin a message with; nothing if that is not known.

        Args:
            database: The group's name.
            table: The source table, quoted as in a map; also one that a collapse takes in.
            option: ``filter``, or ``set.name`` of a mapping.
        """
        wanted = names.parse_table(table)
        found = [source.find(wanted) for source in sources.resolve(self.config) if source.database == database]
        entries = {spec.table for spec in found if spec is not None}
        for number, group in enumerate(self.config.databases):
            for key in group.entries if group.database == database else ():
                if names.parse_table(key) in entries:
                    key = key if group.found is None else group.found.written(key)  # noqa: PLW2901
                    name, _, inner = option.partition(".")
                    path: Path = ("databases", number, "tables", key, name, *([inner] if inner else []))
                    return f"{self.origin_of(path)}: "
        return ""


#: `Loaded.place_of`, for what is only told that there is a configuration.
PlaceOf: TypeAlias = Callable[[str, str, str], str]


def nowhere(_database: str, _table: str, _option: str) -> str:
    """Return no place; see `PlaceOf`."""
    return ""


def load(
    place: FilePath | MapStore | None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Loaded:
    """Read, fill in and check a configuration.

    Args:
        place: The map's file, or where else it is; None to take everything from environment and flags.
        environ: The environment; the process's own by default.
        overrides: Flags: option's path, such as ``pipeline.workers`` -> its text.

    Raises:
        ConfigError: Something is wrong; the text has a line for each fault, with its place.
    """
    store = MapFile(place) if isinstance(place, FilePath) else place
    document = file.Document(value={}, origins={}) if store is None else file.read(store)
    return _load(document, store, os.environ if environ is None else environ, overrides or {})


def _load(
    document: Document, store: MapStore | None, environ: Mapping[str, str], overrides: Mapping[str, str]
) -> Loaded:  # fmt: skip
    flags, flag_problems = environment.from_flags(overrides)
    names = template_names(document.value) | {name for flag in flags for name in template_names(flag.value)}
    settings, problems = environment.from_environment(environ, referenced=names)
    folder = FilePath() if store is None else store.folder or FilePath("/")
    builder = _Builder(document, environ, folder)
    builder.problems += problems + flag_problems
    for setting in (*settings, *flags):
        builder.put(setting)
    config = builder.config()
    if store is not None and store.folder is None:
        relative_paths.refuse(config, store.place)
    config = config.model_copy(update={"lake": config.lake.asking(builder.live_properties())}).anchored(folder)
    # A password that is a name as well is hidden by its place in a url: anywhere else, and in the SQL that mends
    # something above all, it is the name that is meant.
    secret = builder.secrets | (frozenset() if store is None else store.secrets)
    hidden = frozenset(secret) - sources.identifiers(config)
    return Loaded(
        config=config, origins=builder.origins, secrets=hidden, store=store, overrides=dict(overrides),
        digest=document.digest,
    )  # fmt: skip


def again(loaded: Loaded, environ: Mapping[str, str] | None = None) -> Loaded:
    """Return the same configuration as its map has it now, with the same flags.

    Raises:
        ConfigError: Something is wrong; or there is no map.
    """
    if loaded.store is None:
        raise ConfigError("the configuration is from no file", hint="give it one with --config, and start again")
    return load(loaded.store, environ, loaded.overrides)


def with_text(loaded: Loaded, text: str, environ: Mapping[str, str] | None = None) -> Loaded:
    """Return the same configuration as it would be if its map had another text, with the same flags.

    Raises:
        ConfigError: Something is wrong. No places are named: they would be of a text that nobody has.
    """
    assert loaded.store is not None
    return of_store(loaded.store, text, environ, loaded.overrides)


def of_store(
    store: MapStore,
    text: str,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Loaded:
    """Return the configuration that a map would be if it had a text; see `with_text`."""
    document = file.parse(text.removeprefix("\ufeff"), name=store.place)
    document = dataclasses.replace(document, digest=hashlib.sha256(text.encode()).hexdigest())
    try:
        return _load(document, store, os.environ if environ is None else environ, overrides or {})
    except ConfigError as error:
        message = re.sub(rf"(?m)^{re.escape(store.place)}:\d+:\d+: ", "", error.message)
        raise ConfigError(message, hint=error.hint) from None


def of_text(text: str, environ: Mapping[str, str], folder: FilePath) -> Config:
    """Return the configuration that the text of a map makes by itself, without the environment's options and flags.

    Args:
        text: The text of a map that is no file yet; relative paths of its options stay as they are.
        environ: For the variables that it refers to.
        folder: Where the files that it refers to are.

    Raises:
        ConfigError: Something is wrong.
    """
    return _Builder(file.parse(text, name="map"), environ, folder).config()


def template_names(value: object) -> frozenset[str]:
    """Return the names of all variables that a value, or anything in it, refers to."""
    return frozenset(name for _, text in _texts(value, ()) for name in template.variables(text))


class _Builder:
    """Gathers values, origins, problems and secrets on the way to a `Config`."""

    def __init__(self, document: Document, environ: Mapping[str, str], folder: FilePath) -> None:
        self._root = copy.copy(document.value)
        self._environ = environ
        self._folder = folder
        self._unfilled: set[Path] = set()
        self.origins = dict(document.origins)
        self.problems = list(document.problems)
        self.secrets: set[str] = set()

    def put(self, setting: Setting) -> None:
        """Lay one option's value over what is there; free mappings are joined key by key."""
        *parents, last = setting.path
        place = self._root
        for parent in parents:
            inner = place.get(str(parent))
            if inner is not None and not isinstance(inner, dict):
                return  # not a mapping: the file's fault, which the model will tell
            inner = dict(inner or {})
            place[str(parent)] = inner
            place = inner
        before = place.get(str(last))
        if len(setting.path) > 1 and isinstance(setting.value, dict) and isinstance(before, dict):
            place[str(last)] = before | setting.value
        else:
            place[str(last)] = setting.value
            self._forget(setting.path)
        for path in ((*setting.path, *below) for below in _paths(setting.value)):
            self.origins[path] = setting.origin

    def config(self) -> Config:
        """Return the checked configuration.

        Raises:
            ConfigError: Something is wrong.
        """
        filled = self._fill(self._root, ())
        config: Config | None = None
        try:
            config = Config.model_validate(filled)
        except ValidationError as error:
            wrong = translate.problems(error)
            self.problems += [found for found in wrong if not self._is_unfilled(found.path)]
            self.problems += _between_the_rest(filled, wrong)
        except ConfigError as error:  # a secret file that went away in between
            self.problems.append(Problem(path=(), message=error.message))
        if config is not None:
            self.problems += [found for found in check.problems(config) if not self._is_unfilled(found.path)]
        self.secrets |= secret_values(filled)
        if config is None or self.problems:
            text = problem.render(self.problems, self.origins)
            raise ConfigError(secrets.redact(text, self.secrets), hint=_HINT)
        return config

    def live_properties(self) -> dict[str, SecretText]:
        """Return the properties of the lake that files and commands fill, to be asked for again; of a checked map."""
        lake = self._root.get("lake")
        properties = lake.get("properties") if isinstance(lake, dict) else None
        found: dict[str, SecretText] = {}
        for name, text in (properties or {}).items():
            if isinstance(text, str):
                place = problem.render_path(("lake", "properties", name))
                filled = template.fill_later(text, self._environ, place=place, folder=self._folder).value
                if isinstance(filled, SecretText) and not filled.is_fixed:
                    found[name] = filled
        return found

    def _fill(self, value: object, path: Path) -> object:
        if isinstance(value, dict):
            return {key: self._fill(entry, (*path, key)) for key, entry in value.items()}
        if isinstance(value, list):
            return [self._fill(entry, (*path, number)) for number, entry in enumerate(value)]
        return self._fill_text(value, path) if isinstance(value, str) else value

    def _fill_text(self, text: str, path: Path) -> object:
        origin = problem.nearest(path, self.origins)
        place = f"{origin.value}: {problem.render_path(path)}" if origin else problem.render_path(path)
        fill = _fill_of(path)
        try:
            filled = fill(text, self._environ, place=place, folder=self._folder)
        except ValueError as error:
            self.problems.append(Problem(path=path, message=str(error)))
        except ConfigError as error:
            message = error.message.removeprefix(f"{place}: ")
            self.problems.append(Problem(path=path, message=message))
        else:
            self.secrets |= filled.secrets
            if path[:-1] in _FREE and not secrets.is_plain_name(str(path[-1])) and template.refers(text):
                value = str(filled.value)  # nobody knows the names of all secrets of all catalogs
                self.secrets |= set() if _NO_SECRET.fullmatch(value) else {value}
            return filled.value
        self._unfilled.add(path)
        return text

    def _is_unfilled(self, path: Path) -> bool:
        return any(path[: len(other)] == other for other in self._unfilled)

    def _forget(self, path: Path) -> None:
        for other in [other for other in self.origins if other[: len(path)] == path]:
            del self.origins[other]


def _between_the_rest(filled: object, wrong: Sequence[Problem]) -> list[Problem]:
    """Return what is wrong between the parts of a configuration that are right, so that one round shows all.

    Options that are wrong are left out, and nothing is said of what stands beside them: it may follow from that.
    """
    rest = copy.deepcopy(filled)
    for found in filter(lambda one: one.path, wrong):
        place = _at(rest, found.path[:-1])
        if isinstance(place, dict):
            place.pop(found.path[-1], None)
    try:
        config = Config.model_validate(rest)
    except (ValidationError, ConfigError):
        return []
    beside = {found.path[:-1] for found in wrong}
    return [found for found in check.problems(config) if found.path not in beside and found.path[:-1] not in beside]


def _at(value: object, path: Path) -> object:
    """Return what stands at a path; None if nothing does."""
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        else:
            value = value[part] if isinstance(value, list) and isinstance(part, int) else None
    return value


def secret_values(filled: object) -> set[str]:
    """Return the texts that stand under a secret's name, and the passwords in urls, in anything with texts."""
    found: set[str] = set()
    for path, text in _texts(filled, ()):
        if "://" in text:
            found |= secrets.url_secrets(text)
        if "-D" in text:
            found |= secrets.java_secrets(text)
        if path and secrets.is_secret_name(str(path[-1])):
            found.add(text)
    return found - {""}


def _texts(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _texts(entry, (*path, key))
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _texts(entry, (*path, number))


def _paths(value: object) -> Iterable[Path]:
    """Return the way to every key and entry below a value, itself first."""
    yield ()
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            yield from ((key, *below) for below in _paths(entry))


def _fill_of(path: Path) -> Callable[..., Filled]:
    """Return what fills in the value at a path."""
    match path:
        case ("databases", int(), "urls", int(), "url" | "replication_url"):
            return template.fill_url
        case ("copy", "from") | ("copy", "servers", str(), "from"):
            return template.fill_url
        case ("server", "tokens", int(), "token") | ("notify", int(), "secret"):
            return template.fill_later
    return template.fill
