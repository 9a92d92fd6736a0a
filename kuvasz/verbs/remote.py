"""The verbs that talk to a running kuvasz, over its HTTP server: `status` and the commands."""

from __future__ import annotations

import datetime
import getpass
import http
import json
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from kuvasz.admin.api.refusal import MAP_BUSY
from kuvasz.config import sources as config_sources
from kuvasz.errors import ConfigError, KuvaszError, SlotLost, StateError, place_of
from kuvasz.shown import escapes, figures, terminal
from kuvasz.state.store import state_of
from kuvasz.verbs.cluster.answers import united

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kuvasz.config.model import Config
    from kuvasz.config.sources import Source

_TIMEOUT_S = 10.0
_RELOAD_S = 60.0
_DAY_S = 86_400.0

#: The end of a certificate in PEM.
_END = "-----END CERTIFICATE-----"

_STYLES = {"streaming": "green", "copying": "cyan", "error": "bold red", "waiting": "bold red", "paused": "yellow"}


class NotRunning(KuvaszError):
    """No kuvasz answers where the configuration says that one should."""


class Refused(KuvaszError):
    """The running kuvasz did not do what it was asked."""


class NotFound(Refused):
    """The running kuvasz has nothing of what it was asked for."""


class BusyMap(Refused):
    """The running kuvasz has not put the map before into use yet."""


class ForeignServer(Refused):
    """Something answers where the configuration says, and did not leave its token where we may read it."""


def status(config: Config) -> dict[str, Any]:
    """Return what the running kuvasz says of itself.

    Raises:
        ConfigError: The configuration has no server.
        NotRunning: Nobody answers.
    """
    unknown: tuple[str, ...] = ()
    try:
        answer = _ask_all(config, "/status")
    except StateError as error:  # nobody knows who else there is
        answer, unknown = _ask(config, "/status"), (error.message,)
    there = {one["source"] for one in answer.get("sources", ())}
    lacking = (
        f"none of the processes that answer has source {source.name} just now"
        for source in _shared_sources(config) if source.name not in there
    )  # fmt: skip
    return _with_silent(answer, (*unknown, *lacking))


def report(config: Config) -> dict[str, Any]:
    """Return what the running kuvasz tells for a bug report; it quotes no row.

    Raises:
        ConfigError: The configuration has no server.
        NotRunning: Nobody answers.
        ForeignServer: Somebody answers, and the token is not to be found.
        Refused: It does not know this question: it is an earlier version.
    """
    return _ask(config, "/api/support", is_token_needed=True)


def metrics(config: Config) -> str:
    """Return the metrics of the running kuvasz, in Prometheus's words.

    Raises:
        ConfigError, NotRunning, ForeignServer, Refused: See `report`.
    """
    return _answer(config, "/metrics", is_token_needed=True).decode("utf-8", "replace")


def command(
    config: Config, verb: str, *, table: str | None, sid: str | None, database: str | None = None
) -> dict[str, Any]:  # fmt: skip
    """Have the running kuvasz pause, resume, retry or resync tables.

    Raises:
        ConfigError: The configuration has no server.
        NotRunning: Nobody answers.
        ForeignServer: Somebody answers, and the token is not to be found.
        Refused: It knows no such table, or there is nothing to be done.
    """
    given = {"table": table, "sid": sid, "database": database, "by": _person()}
    answer = _ask_all(config, f"/api/{verb}", {name: value for name, value in given.items() if value is not None})
    return _with_silent(answer, status(config).get("silent", ()) if _is_shared(config) else ())


def reload(config: Config, *, is_trial: bool = False, drop_removed: bool | None = None) -> dict[str, Any]:
    """Have the running kuvasz go by what its map's file has now; return what that has otherwise.

    Args:
        config: The configuration.
        is_trial: Nothing is changed, it is only said.
        drop_removed: Whether slots and publications of sources that leave are dropped; None: the map says so.

    Raises:
        ConfigError, NotRunning, ForeignServer: See `command`.
        Refused: The file is faulty or cannot follow without a restart, or another change is under way.
    """
    body = {"by": _person(), "dry_run": is_trial}
    body |= {} if drop_removed is None else {"drop_removed": drop_removed}
    return _ask(config, "/api/map/reload", body, timeout_s=_RELOAD_S)


def cut(config: Config, *, name: str | None, database: str | None, keep: str | None) -> dict[str, Any]:
    """Have the running kuvasz tag all tables at one moment.

    Args:
        config: The configuration.
        name: What the cut is called; None: as its time.
        database: Only this group of the map.
        keep: For how long it is kept.

    Raises:
        ConfigError, NotRunning, ForeignServer: See `command`.
        Refused: A table does not stream, there is a cut of this name, or it took too long.
    """
    given = {"name": name, "database": database, "keep": keep, "by": _person()}
    answer = _ask_all(config, "/api/cut", {one: value for one, value in given.items() if value is not None},
                      timeout_s=_RELOAD_S, kept=("name",), is_of_all=True)  # fmt: skip
    lacking = (
        f"{place_of(source.name)}: it is not in this cut" for source in _shared_sources(config)
        if source.name not in answer["lsns"] and database in {None, source.database}
    )  # fmt: skip
    return _with_silent(answer, lacking)


def cut_lines(answer: dict[str, Any]) -> str:
    """Return what `cut` answers, a line for each source and table."""
    lines = [f"cut {answer['name']}: tag {answer['tag']}"]
    lines += [f"  {place_of(source)}: everything before {at}" for source, at in answer["lsns"].items()]
    lines += [
        f"  {place_of(table=target)}: {'empty' if snapshot is None else f'snapshot {snapshot}'}"
        for target, snapshot in answer["snapshots"].items()
    ]
    lines += [f"  not all of it: {told}" for told in answer.get("silent", ())]
    return escapes.lines("\n".join(lines))


def differences(answer: dict[str, Any]) -> str:
    """Return what `reload` answers, a line for each source."""
    lines = [f"{place_of(name)}: added" for name in answer["added"]]
    lines += [f"{place_of(name)}: removed" for name in answer["removed"]]
    for one in answer["changed"]:
        said = [
            *one["options"],
            *(f"table {t} {what}" for what in ("added", "removed", "changed") for t in one[what]),
        ]
        lines.append(f"{place_of(one['source'])}: {', '.join(said)}; it is begun again")
    lines += [f"{option}: counts from the next start on" for option in answer["needs_restart"]]
    return escapes.lines("\n".join(lines or ["no source or table differs"]))


def foretold(config: Config) -> str:
    """Return what a reload would change in the running kuvasz, for who plans; empty if none answers."""
    try:
        told = differences(reload(config, is_trial=True))
    except (NotRunning, ForeignServer, ConfigError):
        return ""
    except Refused as error:
        told = escapes.lines(f"refused: {error}")
    return "\n".join(["the running kuvasz, by `kuvasz reload`:", *(f"  {line}" for line in told.split("\n")), "", ""])


def _person() -> str:
    """Return who gives a command, for the log of the kuvasz that carries it out."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # an account without a name, as in some containers
        return socket.gethostname()


def maintain(config: Config, targets: list[str], *, full: bool) -> list[dict[str, Any]]:
    """Have the running kuvasz look after tables now; returns when it has, however long that takes.

    Raises:
        ConfigError, NotRunning, ForeignServer, Refused: See `command`.
    """
    asked = [targets] if len(_places(config)) == 1 else [[target] for target in targets]  # each has its own
    answers = [_ask_all(config, "/api/maintain", {"targets": some, "full": full}, timeout_s=_DAY_S) for some in asked]
    return [table for answer in answers for table in answer["tables"]]


def _ask_all(
    config: Config, path: str, body: dict[str, Any] | None = None, timeout_s: float = _TIMEOUT_S,
    kept: Sequence[str] = (), *, is_of_all: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Ask all processes that share the map: each knows what it has, and refuses what it has not.

    Args:
        config: The configuration.
        path: What is asked.
        body: With what.
        timeout_s: How long each may take.
        kept: What the first answers is asked of the others as well.
        is_of_all: What one refuses that has something of it is missing, though others have done their part.
    """
    answers: list[dict[str, Any]] = []
    errors: list[KuvaszError] = []
    places = _places(config)
    for url, token in places:
        try:
            given = body and body | {name: answers[0][name] for name in kept if answers}
            answers.append(_ask(config, path, given, timeout_s, place=(url, token)))
        except KuvaszError as error:
            if len(places) == 1:
                raise
            errors.append(error)
    others = (NotFound,) if is_of_all else (Refused,)  # each has its own, and nothing of theirs
    silent = [error for error in errors if not isinstance(error, others) or isinstance(error, ForeignServer)]
    if not answers:
        raise (silent or errors)[0]
    return united(answers, [error.message for error in silent])


def _with_silent(answer: dict[str, Any], told: Iterable[str]) -> dict[str, Any]:
    """Return an answer with what else is missing in it, if anything is."""
    silent = list(dict.fromkeys((*answer.get("silent", ()), *told)))
    return answer | ({"silent": silent} if silent else {})


def _is_shared(config: Config) -> bool:
    """Whether several processes share the map, or may: each has some of it."""
    is_asked = config.server.address is not None and config.server.host is not None
    try:
        return is_asked and any(one.node for one in state_of(config).address.all())
    except StateError:
        return True


def _shared_sources(config: Config) -> Sequence[Source]:
    """Return the sources of a map that processes share: one that none of them has is with nobody, or on its way."""
    return config_sources.resolve(config) if _is_shared(config) else ()


def publish(
    config: Config, *, table: str | None, branch: str | None, cut: str | None, is_trial: bool, is_forced: bool
) -> list[dict[str, Any]]:  # fmt: skip
    """Have the running kuvasz publish tables, each process those that it has; see `kuvasz.verbs.lake.publish`.

    Raises:
        ConfigError, NotRunning, ForeignServer, Refused: See `command`.
    """
    given = {"table": table, "branch": branch, "cut": cut, "dry_run": is_trial, "force": is_forced, "by": _person()}
    answer = _ask_all(config, "/api/publish", {one: value for one, value in given.items() if value is not None},
                      timeout_s=_DAY_S, is_of_all=True)  # fmt: skip
    found: list[dict[str, Any]] = answer["tables"]
    return found


def _ask(
    config: Config, path: str, body: dict[str, Any] | None = None, timeout_s: float = _TIMEOUT_S, *,
    is_token_needed: bool = False, place: tuple[str, str | None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    text = _answer(config, path, body, timeout_s, is_token_needed=is_token_needed, place=place)
    try:
        answer: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise _silent((place or _where(config))[0], error) from error
    return answer


def _answer(
    config: Config, path: str, body: dict[str, Any] | None = None, timeout_s: float = _TIMEOUT_S, *,
    is_token_needed: bool = False, place: tuple[str, str | None] | None = None,
) -> bytes:  # fmt: skip
    url, token = place or _where(config)
    if not url:
        raise NotRunning(
            "a process that applies has no server.address: what it has cannot be asked", hint="give it an address"
        )
    request = urllib.request.Request(f"{url}{path}")  # noqa: S310 (an http url of our own making)
    if token is not None:  # who only looks sees more with it
        request.add_header("Authorization", f"Bearer {token}")
    if token is None and (is_token_needed or body is not None):
        raise _without_token(config, url)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    # A proxy of the environment has no business between us and our own process.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), *_https(config))
    try:
        with opener.open(request, timeout=timeout_s) as response:
            found: bytes = response.read()
            return found
    except urllib.error.HTTPError as error:
        raise _refusal(error) from error
    except (OSError, ValueError) as error:
        if isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
            raise _stranger(config, url, error) from error
        raise _silent(url, error) from error


def _https(config: Config) -> list[urllib.request.HTTPSHandler]:
    """Return what speaks with who has the certificate of the map, whatever names that has, and with nobody else.

    Raises:
        ConfigError: The certificate cannot be read.
    """
    if (tls := config.server.tls) is None:
        return []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # we ask for an address, and know whom we look for
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is trusted, whoever signed it
    try:
        own, end, _ = Path(tls.certificate).read_text("ascii").partition(_END)
        context.load_verify_locations(cadata=own + end)
    except (OSError, ValueError) as error:
        is_read = isinstance(error, ssl.SSLError | UnicodeError)
        told = "no certificate in PEM" if is_read else str(getattr(error, "strerror", None) or error).lower()
        raise ConfigError(
            f"server.tls.certificate: cannot use {tls.certificate}: {told}",
            hint="the verbs know kuvasz by it: let this user read it",
        ) from error
    return [urllib.request.HTTPSHandler(context=context)]


def _stranger(config: Config, url: str, error: OSError | ValueError) -> ForeignServer:
    told = getattr(getattr(error, "reason", None), "verify_message", "")
    file = None if config.server.tls is None else config.server.tls.certificate
    return ForeignServer(
        f"who answers at {url} does not prove to be kuvasz by {file or 'a certificate of the map'}: {told}",
        hint="give `server.tls` what kuvasz was started with; if the file was just changed, try again in a moment",
    )


def _without_token(config: Config, url: str) -> KuvaszError:
    """Say who answers where only a kuvasz with a token could be steered."""
    address = urllib.parse.urlsplit(url)
    try:
        socket.create_connection((address.hostname or "", address.port or 80), _TIMEOUT_S).close()
    except OSError as error:
        return _silent(url, error)
    place = state_of(config).address.place
    return ForeignServer(
        f"something answers at {url}, and left no token in {place}",
        hint="if that is kuvasz, run this as its user, with its map and where it runs; if it is another program, give"
        " `server.address` another port",
    )


def _silent(url: str, error: Exception) -> NotRunning:
    reason = getattr(error, "reason", error)
    reason = getattr(reason, "strerror", None) or reason
    return NotRunning(
        f"no kuvasz answers at {url}: {str(reason).lower()}",
        hint="start it with `kuvasz --config …`, or check `server.address`",
    )


def _places(config: Config) -> list[tuple[str, str | None]]:
    """Return url and token of all that share the map; of one alone where it alone has it.

    Raises:
        StateError: Nobody knows who shares it.
    """
    server = config.server
    if server.address is not None and server.host is not None:
        found = state_of(config).address.all()
        if len(found) > 1:
            return [(one.url, one.token) for one in found]
    return [_where(config)]


def _where(config: Config) -> tuple[str, str | None]:
    """Return url and token: from the state store, else as far as the configuration tells."""
    server = config.server
    if server.address is None or server.host is None:
        raise ConfigError("server.address is null: a running kuvasz cannot be asked", hint="give it an address")
    found = state_of(config).address.find()
    if found is not None:
        return found.url, found.token
    if not server.port:
        raise NotRunning(
            f"no kuvasz runs: server.address is {server.address}, and its port is not in the state folder",
            hint="start it with `kuvasz --config …`",
        )
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # noqa: S104 (where to connect to)
    scheme = "http" if server.tls is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{server.port}", None


def _refusal(error: urllib.error.HTTPError) -> Refused:
    try:
        answer = dict(json.load(error))
        kind = NotFound if error.code == http.HTTPStatus.NOT_FOUND else Refused
        return (BusyMap if answer.get("code") == MAP_BUSY else kind)(answer["error"], hint=answer["hint"])
    except (ValueError, KeyError, TypeError):
        return Refused(f"kuvasz answers {error.code} {error.reason}")


def exit_code(answer: dict[str, Any]) -> int:
    """Return 5 if a source waits for a person, 1 if a source or a table is in error otherwise, else 0."""
    states = {source["state"] for source in answer["sources"]}
    if "error" in states:
        return SlotLost.exit_code
    # One that waits for a person as its columns changed (`on_schema_change: hold`) is paused, with an error.
    is_any = any(
        table["state"] == "error" or table.get("error") for source in answer["sources"] for table in source["tables"]
    )
    return int(bool(answer.get("silent")) or "waiting" in states or is_any)


def render(answer: dict[str, Any]) -> Group:
    """Return the status for a terminal."""
    answer = _shown(answer)
    parts: list[Text | Table] = [
        Text(
            f"kuvasz {answer['version']}, {answer['phase']} since {answer['started_at'][:19]}Z,"
            f" {figures.size(answer['waiting_bytes'])} of {figures.size(answer['memory_bytes'])} waiting"
        )
    ]
    parts += [Text(f"  not all is shown: {told}", style="red") for told in answer.get("silent", ())]
    if answer.get("log"):
        parts.append(_log(answer["log"]))
    for source in answer["sources"]:
        parts.append(_source(source))
        if source["error"]:
            parts.append(Text(f"  {source['error']}{_again(source['retry_at'])}", style="red"))
        parts.append(_tables(source["tables"]))
        parts += [
            Text(
                f"  {table['table']}, since {table['since'][:19]}Z: {table['error']['message']}\n"
                f"  hint: {table['error']['hint']}{_again(table['retry_at'])}",
                style="red",
            )
            for table in source["tables"]
            if table["error"]
        ]
        parts += [
            Text(f"  {table['table']}: {table['why_copy']}", style="yellow")
            for table in source["tables"]
            if table["why_copy"]
        ]
        parts += [
            Text(f"  {table['table']}: its copy waits for transactions to end: {table['waits_for']}", style="yellow")
            for table in source["tables"]
            if table.get("waits_for")
        ]
        parts += [
            Text(f"  {table['table']}: its copy waits for its hours, until {table['copy_resumes_at'][:19]}Z")
            for table in source["tables"]
            if table.get("copy_resumes_at")
        ]
    parts += [
        Text(
            f"\n{one['source']} left the map: its slot keeps {figures.size(one['retained_bytes'])} of WAL until it is"
            " dropped, or the source is in the map again",
            style="yellow",
        )
        for one in answer.get("released", ())
    ]
    if answer.get("maintenance"):
        parts += [_times(answer["maintenance"]), _files(answer["maintenance"])]
    return Group(*parts)


def _log(log: dict[str, Any]) -> Text:
    since = "" if log["staged_at"] is None else f", staged last at {log['staged_at'][:19]}Z"
    full = ", and sources are not read" if log["is_full"] else ""
    line = f"log: {figures.size(log['waiting_bytes'])} waiting{full}, {log['objects']} objects{since}"
    found = Text(f"{line}\n  {log['error']}", style="red") if log["error"] else Text(line)
    for one in log.get("groups", ()):
        behind = one["behind_seconds"]
        lacks = "has all" if behind is None else f"lacks {one['objects']} objects, {behind:.0f} s behind"
        ended = "" if one["is_applied"] else ", and nobody applies it: start it, or `kuvasz cluster retire` it"
        found.append(f"\n  group {one['group']}: {lacks}{ended}", style="default" if one["is_applied"] else "yellow")
    return found


def _shown(value: Any, name: str = "") -> Any:  # noqa: ANN401 (JSON)
    """Return an answer as a terminal may show it: each text on one line, but for the hint below an error."""
    if isinstance(value, str):
        return escapes.lines(value) if name == "error" else escapes.one_line(value)
    if isinstance(value, dict):
        return {key: _shown(entry, key) for key, entry in value.items()}
    return [_shown(entry) for entry in value] if isinstance(value, list) else value


def _times(tables: list[dict[str, Any]]) -> Text:
    line = Text("\nfiles", style="bold")
    for what, field, chosen in (("last written anew", "last_at", max), ("next look", "next_at", min)):
        if known := [table[field] for table in tables if table[field] is not None]:
            line.append(f", {what} {chosen(known)[:19]}Z", style="not bold default")
    return line


def _files(tables: list[dict[str, Any]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for table in tables:
        terminal.add_row(
            grid,
            f"  {table['target']}",
            f"{table['files']:,} files of {figures.size(table['average_bytes'])}",
            f"{table['dead_share']:.0%} dead rows",
            f"{table['delete_files']:,} with deletes",
            "" if table["snapshots"] is None else f"{table['snapshots']:,} snapshots",
            f"{figures.size(table['rewritten_bytes'])} rewritten for {figures.size(table['changed_bytes'])} changed",
            Text(table["error"] or "", style="red"),
        )
    return grid


def _source(source: dict[str, Any]) -> Text:
    lag = "lag unknown" if source["lag_seconds"] is None else f"{source['lag_seconds']:.1f} s behind"
    if source["lag_bytes"] is not None:
        lag += f", {figures.size(source['lag_bytes'])} of WAL"
    slot = source["slot"]
    kept = "" if slot is None else figures.size(slot["retained_bytes"])
    held = "" if slot is None else f", slot keeps {kept} ({slot['status']}{_left(slot)})"
    line = Text(f"\n{source['source']} ", style="bold")
    line.append(source["state"], style=_STYLES.get(source["state"], "yellow"))
    return line.append(f" {lag}, confirmed {source['confirmed_lsn']}{held}", style="not bold default")


def _left(slot: dict[str, Any]) -> str:
    """Say how long a slot lasts where the source limits it."""
    if slot["safe_bytes"] is None:
        return ""
    left = f", {figures.size(slot['safe_bytes'])} before it is lost"
    seconds = slot["seconds_left"]
    return left if seconds is None else f"{left}: {datetime.timedelta(seconds=round(seconds))} at this rate"


def _again(retry_at: str | None) -> str:
    return "" if retry_at is None else f"\n  tried again at {retry_at[:19]}Z"


def _tables(tables: list[dict[str, Any]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for table in tables:
        copied = table["copy_progress"]
        is_copying = table["state"] == "copying" and copied is not None
        terminal.add_row(
            grid,
            f"  {table['table']}",
            table["target"],
            Text(table["state"], style=_STYLES.get(table["state"], "")),
            f"{copied:.0%}, {table['copied_rows']:,} rows{_speed(table)}"
            if is_copying
            else f"{table['rows']:,} changes",
            "" if table["newest_change_at"] is None else f"newest {table['newest_change_at'][:19]}Z",
            _parked(table["parked"]),
            f"{table['rejected_rows']:,} rejected" if table.get("rejected_rows") else "",
            _differing(table.get("verified")),
        )
    return grid


def _speed(table: dict[str, Any]) -> str:
    """Say how fast a copy is, and how long it goes on at that speed."""
    rate, left = table.get("copy_rows_per_second"), table.get("copy_seconds_left")
    if rate is None or left is None:
        return ""
    return f", {rate:,.0f}/s, {datetime.timedelta(seconds=round(left))} left"


def _differing(verified: dict[str, Any] | None) -> str:
    """Say of a table that was found to differ from its source that it does."""
    return f"{verified['left']:,} keys differ: kuvasz verify" if verified and verified["left"] else ""


def _parked(parked: dict[str, Any] | None) -> str:
    if parked is None:
        return ""
    full = ", full: the source keeps the rest" if parked["is_full"] else ""
    return f"{figures.size(parked['bytes'])} parked since {parked['since'][:19]}Z{full}"
