"""The verb: all parts gathered side by side, and put into one archive."""

from __future__ import annotations

import dataclasses
import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kuvasz.config import secrets, sources
from kuvasz.config.secrets import Redactor, SecretText, SecretUrl
from kuvasz.shown import figures
from kuvasz.state.store import state_of
from kuvasz.verbs.support import (
    archive,
    configuration,
    findings,
    java_stacks,
    lake_heads,
    log_file,
    machine,
    manifest,
    running,
    stacks,
    state_folder,
    versions,
)
from kuvasz.verbs.support.part import Part, PartFiles, in_time, outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kuvasz.config.load import Loaded
    from kuvasz.verbs.support.manifest import ManifestLine

#: Seconds for each part; those that ask several give each of them what is left.
_LOCAL_S = 5.0
_ANSWER_S = 12.0
_SEVERAL_S = 10.0
_SECRETS_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SupportOutcome:
    """What came of the verb."""

    path: Path
    size: int
    lines: tuple[ManifestLine, ...]
    is_under_way: bool  #: something does not end, and would keep the process from ending


def run(loaded: Loaded, output: Path | None = None, log: Path | None = None) -> SupportOutcome:
    """Make the archive.

    Args:
        loaded: The configuration.
        output: Its file, or the folder for it; by default the working folder.
        log: A file with the log of kuvasz, whose end goes into it; by default the one that the map names.

    Raises:
        ConfigError: It cannot be written. Whatever else is missing stands in its manifest.
    """
    at = datetime.datetime.now(datetime.UTC)
    called = archive.name(loaded.config, at)
    path = archive.place(called, output)
    redact = _redactor(loaded)
    found = outcomes(_parts(loaded, log))
    files = archive.rendered({file: content for one in found for file, content in one.gathered.files.items()}, redact)
    lines = tuple(
        dataclasses.replace(line, missing=tuple(map(redact, line.missing))) for line in manifest.lines(found, files)
    )
    archive.write(path, called, {manifest.FILE: manifest.page(lines, at).encode(), **files}, at)
    is_under_way = any(one.is_under_way or one.gathered.is_under_way for one in found)
    return SupportOutcome(path=path, size=path.stat().st_size, lines=lines, is_under_way=is_under_way)


def render(outcome: SupportOutcome) -> str:
    """Return where the archive is, and what it has and has not."""
    return f"{outcome.path}: {figures.size(outcome.size)}, for its owner alone\n\n{manifest.render(outcome.lines)}"


def as_json(outcome: SupportOutcome) -> dict[str, Any]:
    """Return the outcome ready for JSON."""
    parts = [line.as_json() for line in outcome.lines]
    return {"path": str(outcome.path), "bytes": outcome.size, "parts": parts}


def _redactor(loaded: Loaded) -> Redactor:
    """Return what takes secrets out: those of the map, what urls and tokens are now, and our own token."""
    redact = Redactor(loaded.secrets)
    mapped = sources.resolve(loaded.config)
    texts: list[SecretText] = [url for one in mapped for url in (one.url, one.replication_url) if url is not None]
    texts += [*loaded.config.copy.standbys, *(one.token for one in loaded.config.server.tokens)]
    found, _ = in_time(dict.fromkeys(texts), _secrets_in, _SECRETS_S)
    names = sources.identifiers(loaded.config)
    redact.learn({secret for known in found.values() for secret in known} - names)
    if (address := state_of(loaded.config).address.find()) is not None:
        redact.learn({address.token})
    return redact


def _secrets_in(text: SecretText) -> set[str]:
    try:
        return secrets.url_secrets(text.get()) if isinstance(text, SecretUrl) else {text.get()}
    except Exception:  # noqa: BLE001 (the part that needs it says so)
        return set()


def _parts(loaded: Loaded, log: Path | None) -> Sequence[Part]:
    config = loaded.config
    if log is None and config.log.file is not None:
        log = Path(config.log.file)
    told = partial(log_file.gather, log) if log is not None else _without_log
    return (
        Part(name="configuration", what="every option with its origin", limit_s=_LOCAL_S,
             gather=partial(configuration.gather, loaded)),
        Part(name="running", what="what the running kuvasz says: status, events, stacks of threads and tasks",
             limit_s=_ANSWER_S, gather=partial(running.report, config)),
        Part(name="metrics", what="its metrics", limit_s=_ANSWER_S, gather=partial(running.metrics, config)),
        Part(name="stacks", what="stacks of its threads, by a signal", limit_s=_LOCAL_S,
             gather=partial(stacks.gather, config)),
        Part(name="java", what="stacks of its JVM's threads", limit_s=_ANSWER_S,
             gather=partial(java_stacks.gather, config)),
        Part(name="log", what="the last lines of a log file", limit_s=_LOCAL_S, gather=told),
        Part(name="versions", what="of kuvasz, Python, Java, Spark, Iceberg and packages", limit_s=_LOCAL_S,
             gather=partial(versions.gather, config)),
        Part(name="sources", what="versions and facts of the sources' servers", limit_s=_ANSWER_S,
             gather=partial(versions.sources, config, _SEVERAL_S)),
        Part(name="state", what="notes of the state folder, and its files with their sizes", limit_s=_LOCAL_S,
             gather=partial(state_folder.gather, config)),
        Part(name="tables", what="heads of the lake tables' metadata", limit_s=_ANSWER_S,
             gather=partial(lake_heads.gather, config, _SEVERAL_S)),
        Part(name="check", what="findings of `kuvasz check`", limit_s=_ANSWER_S,
             gather=partial(findings.gather, loaded)),
        Part(name="machine", what="cores, memory, limits, disks", limit_s=_LOCAL_S,
             gather=partial(machine.gather, config)),
    )  # fmt: skip


def _without_log() -> PartFiles:
    return PartFiles(
        notes=("none was named: kuvasz writes its log to stderr, and --log-file takes what that is kept in",)
    )


__all__ = ["SupportOutcome", "as_json", "render", "run"]
