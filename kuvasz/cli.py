"""The command line: one small function per verb, exit codes from `kuvasz.errors`.

`--config` and `--set` may stand before the verb or after it. Results go to stdout, as text or with `--json` as one
JSON document; errors go to stderr. Verbs import what they need themselves, so that `kuvasz config` need not wait for
Spark's libraries.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import uvloop

from kuvasz import __version__, log
from kuvasz.admin.report import stack_file
from kuvasz.config.secrets import Redactor
from kuvasz.errors import ConfigError, KuvaszError, StateTaken, first_of
from kuvasz.shown import escapes

if TYPE_CHECKING:
    from kuvasz.admin.server import AdminServer
    from kuvasz.app import App
    from kuvasz.config.load import Loaded
    from kuvasz.config.written.map_store import MapStore
    from kuvasz.state.ports import ClusterMember
    from kuvasz.verbs.cluster.applying import GroupsApplied
    from kuvasz.verbs.sources.erasure_run import ErasureRun

app = typer.Typer(
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: When a running process looks for garbage: what it has loaded is left out of it, so looks are cheap.
_COLLECTOR = 2_000, 10, 10

#: Columns of lines that are not for a terminal.
_UNFOLDED = 10_000

#: Before the verb; the environment stands in for it here alone, so that it never outranks what was written.
_CONFIG = "--config", "--map", "-c"
_CONFIG_HELP = "The map: a file, sqlite:map.db or postgresql://…"
GlobalConfigOption = Annotated[
    str | None,
    typer.Option(*_CONFIG, help=_CONFIG_HELP, envvar="KUVASZ_CONFIG", show_default=False, show_envvar=False),
]
ConfigOption = Annotated[str | None, typer.Option(*_CONFIG, help=_CONFIG_HELP, show_default=False)]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="An option: pipeline.workers=4.", show_default=False)
]
LogFormatOption = Annotated[
    str | None, typer.Option("--log", help="auto, plain or json: log.format.", show_default=False)
]
LogLevelOption = Annotated[
    str | None, typer.Option("--log-level", help="debug, info, warning or error: log.level.", show_default=False)
]
LogFileOption = Annotated[
    str | None, typer.Option("--log-file", help="Instead of stderr: log.file.", show_default=False)
]
PatternOption = Annotated[
    list[str] | None,
    typer.Option("--tables", help="Only these: 'shop.*', 'orders_*'; may be repeated.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Globals:
    """What was given before the verb."""

    config: str | None
    settings: tuple[str, ...]


@app.callback(invoke_without_command=True)
def run(  # noqa: PLR0913 (its options)
    context: typer.Context,
    config: GlobalConfigOption = None,
    settings: SetOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    log_file: LogFileOption = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End when everything the sources have now is in the lake.")
    ] = False,
    snapshot_only: Annotated[
        bool, typer.Option("--snapshot-only", help="Copy every table once, leave nothing at the sources, and end.")
    ] = False,
    role: Annotated[
        str | None, typer.Option("--role", help="all, read or apply: as cluster.role.", show_default=False)
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Replicate PostgreSQL databases into an Iceberg lake until stopped; or carry out a verb."""
    if version:
        print(f"kuvasz {__version__}")
        raise typer.Exit
    named_apart = (("format", log_format), ("level", log_level), ("file", log_file))
    told = [f"log.{option}={value}" for option, value in named_apart if value is not None]
    told += [] if role is None else [f"cluster.role={role}"]
    context.obj = _Globals(config=config, settings=(*(settings or ()), *told))
    if context.invoked_subcommand is not None:
        return
    hangup = _remembered_hangup()
    loaded = _read(context)
    if until_caught_up and loaded.config.cluster.role == "read":
        hint = "give it to the one that applies"
        raise ConfigError("--until-caught-up: a process that reads does not know what is in the lake", hint=hint)
    if loaded.config.cluster.role == "read":
        from kuvasz.lake.files.spared import spare_heap

        spare_heap()  # before there are threads
    logs = loaded.config.log
    log.set_up(logs.format, loaded.secrets, level=logs.level, file=logs.file)
    if snapshot_only and loaded.config.cluster.coordinator is not None:
        raise ConfigError(
            "cluster.coordinator: copies that are made once are made by one process",
            hint="take the section cluster out of the map for --snapshot-only",
        )
    from kuvasz.state.store import cluster_member, state_of

    member = cluster_member(loaded.config, "replicates", _end_at_once)
    if member is None:  # until the process has ended: a thread that outlives the event loop may still write
        state_of(loaded.config).own("replicates").take()
    else:
        member.join()
    stack_file.listen(loaded.config.pipeline.state_folder)
    run = _Run(member, hangup, until_caught_up=until_caught_up, snapshot_only=snapshot_only)
    raise typer.Exit(uvloop.run(run.replicate(loaded)))


def _remembered_hangup() -> threading.Event:
    """Return what is set by a SIGHUP that comes before anybody can read the map again: it would end the process."""
    heard = threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: heard.set())
    return heard


def _end_at_once(why: str) -> None:
    """End this process before anybody else may replicate: what it has in hand is not the lake's any more."""
    print(f"error: the lease is lost: {why}", file=sys.stderr, flush=True)
    os._exit(1)


class _Run:
    """A process that replicates, or stands by until its turn comes.

    Args:
        member: Its place in its cluster; None if there is none.
        hangup: Set by a SIGHUP that came early.
        until_caught_up: See `kuvasz.app.App.run`.
        snapshot_only: See `kuvasz.app.App`.
    """

    def __init__(
        self, member: ClusterMember | None, hangup: threading.Event, *, until_caught_up: bool, snapshot_only: bool
    ) -> None:
        self._member = member
        self._hangup = hangup
        self._until_caught_up = until_caught_up
        self._snapshot_only = snapshot_only
        self._is_told_to_end = False

    async def replicate(self, loaded: Loaded) -> int:
        """Replicate until told to stop; return the exit code."""
        if self._member is not None and loaded.config.cluster.role == "read":
            return await self._read(loaded, self._member)
        from kuvasz.lake.files.spared import spare_pandas

        spare_pandas()
        if self._member is None:
            return await self._replicate_alone(loaded)
        from kuvasz.app import App
        from kuvasz.verbs.cluster.standby import Standby, tell_map
        from kuvasz.verbs.cluster.standby_server import serve
        from kuvasz.verbs.maps import patterns
        from kuvasz.verbs.replicate import are_seen_off

        standby, stop = Standby(loaded, self._member), asyncio.Event()
        groups: GroupsApplied | None = None
        try:
            _on_end(stop.set)
            async with serve(standby, loaded.config.server):
                lake = await standby.wait(stop)
            if lake is None:
                return 0
            groups = await asyncio.to_thread(self._groups, standby.loaded)
            loaded = await asyncio.to_thread(patterns.kept, standby.loaded, None if groups is None else groups.groups)
            application = App(loaded.config, lake=lake, holds_lease=True, claims=groups)
            if stop.is_set():  # told when it was not there yet
                application.stop()
            telling = asyncio.create_task(tell_map(application, self._member), name="map of the cluster")
            try:
                return (await self._run(loaded, application, groups=groups))[0]
            finally:
                telling.cancel()
        finally:
            if await asyncio.to_thread(are_seen_off):  # else the lease ends by itself
                if groups is not None:
                    await asyncio.to_thread(groups.end)
                await asyncio.to_thread(self._member.leave)

    @staticmethod
    def _groups(loaded: Loaded) -> GroupsApplied | None:
        """Return the groups of the map that a process applies beside others, its share taken; None: all."""
        from kuvasz.state.store import group_holders
        from kuvasz.verbs.cluster.applying import GroupsApplied
        from kuvasz.verbs.maps import patterns

        holders = group_holders(loaded.config)
        if loaded.config.cluster.role != "apply" or holders is None:
            return None
        groups = GroupsApplied(holders)
        groups.begin(patterns.known(loaded).config)
        return groups

    async def _replicate_alone(self, loaded: Loaded) -> int:
        """Replicate without a cluster; when erasures are asked for, nothing is replicated until they are done."""
        from kuvasz.app import App
        from kuvasz.verbs.maps import patterns
        from kuvasz.verbs.replicate import are_seen_off
        from kuvasz.verbs.sources.erasure_run import ErasureRun

        erasures = ErasureRun(loaded.config)
        while True:
            if await erasures.are_due():
                _on_end(lambda: os._exit(0))  # the next start goes on
                loaded = await erasures.carry_out(loaded)
            loaded = await asyncio.to_thread(patterns.kept, loaded)
            application = App(loaded.config, snapshot_only=self._snapshot_only)
            code, loaded = await self._run(loaded, application, erasures)
            is_over = self._is_told_to_end or not await erasures.are_due()
            if is_over or not await asyncio.to_thread(are_seen_off):  # else the next process carries them out
                return code

    @staticmethod
    async def _read(loaded: Loaded, member: ClusterMember) -> int:
        """Only read the sources, without Spark, until told to stop; return the exit code."""
        from kuvasz.verbs.cluster.reading import SourcesRead
        from kuvasz.verbs.cluster.standby import Standby
        from kuvasz.verbs.cluster.standby_server import serve

        standby, stop = Standby(loaded, member), asyncio.Event()
        try:
            _on_end(stop.set)
            async with serve(standby, loaded.config.server):
                is_mine = await standby.wait_to_read(stop)
            if not is_mine:
                return 0
            _settle()
            reading = SourcesRead(standby.loaded)
            async with serve(standby, loaded.config.server, reading.status):
                return await reading.run(stop)
        finally:
            await asyncio.to_thread(member.leave)

    async def _run(
        self,
        loaded: Loaded,
        application: App,
        erasures: ErasureRun | None = None,
        groups: GroupsApplied | None = None,
    ) -> tuple[int, Loaded]:
        """Run an application to its end; return the exit code, and the map that it had then."""
        from kuvasz.verbs.replicate import replicate

        _settle()
        servers: list[AdminServer] = []
        sharing: list[asyncio.Task[None]] = []

        def end() -> None:
            self._is_told_to_end = True
            application.stop()

        _on_end(end)

        def served(server: AdminServer) -> None:
            servers.append(server)
            if erasures is not None:
                erasures.tell()
            if groups is not None:
                sharing.append(asyncio.create_task(groups.run(application, server.live_map), name="groups"))
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.live_map.signal)
            if self._hangup.is_set():
                server.live_map.signal()

        is_job = self._until_caught_up or self._snapshot_only
        book = None if erasures is None or is_job else erasures.book
        async with _shown(application) if log.is_live(loaded.config.log.format) else contextlib.nullcontext():
            try:
                code = await replicate(
                    loaded, application, until_caught_up=self._until_caught_up, on_served=served, erasures=book
                )
            finally:
                for task in sharing:
                    task.cancel()
        return code, servers[0].live_map.loaded or loaded


def _shown(application: App) -> contextlib.AbstractAsyncContextManager[None]:
    """Draw on a terminal what an application does; what draws is loaded for that alone."""
    from kuvasz.console import show

    return show(application)


def _settle() -> None:
    """Have the collector leave alone what was loaded, and look at what comes: see `kuvasz.__main__`."""
    gc.freeze()
    gc.set_threshold(*_COLLECTOR)


def _on_end(stop: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


@app.command("config")
def show_config(
    context: typer.Context,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a map instead.")] = False,
) -> None:
    """Show every option with its value and where that is from, secrets hidden."""
    from kuvasz.config import effective, reference

    if schema:
        print(reference.schema_text(), end="")
        return
    loaded = _loaded(context, config, settings)
    if as_json:
        _print_json([dataclasses.asdict(option) for option in effective.options(loaded)])
    else:
        print(effective.yaml(loaded), end="")


@app.command("types")
def show_types(as_json: JsonOption = False) -> None:
    """Show what each PostgreSQL type becomes in the lake."""
    from kuvasz.verbs import text, typetable

    rows = typetable.rows()
    if as_json:
        _print_json([dataclasses.asdict(row) for row in rows])
    else:
        print(text.table(("postgresql", "iceberg", "note"), [(r.postgresql, r.iceberg, r.note) for r in rows]))


@app.command("check")
def check(
    context: typer.Context, config: ConfigOption = None, settings: SetOption = None, as_json: JsonOption = False,
    is_brief: Annotated[bool, typer.Option("--failed", help="Show what is not ok alone.")] = False,
) -> None:  # fmt: skip
    """Look at machine, lake and sources before anything is touched; exit 3 or 5 if something needed is missing."""
    from kuvasz.verbs import check as verb

    loaded = _asked(context, config, settings)
    found = verb.findings(loaded.config, loaded.place_of)
    redact = Redactor(loaded.secrets)
    if as_json:
        _print_json(verb.as_json([one for one in found if not (is_brief and one.ok)]), redact)
    else:
        print(redact(verb.render(found, is_brief=is_brief)))
    raise typer.Exit(verb.exit_code(found))


@app.command("plan")
def plan(
    context: typer.Context, config: ConfigOption = None, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """Show what a start, or a reload, would do, and do nothing; exit 4 if a start had anything to do."""
    from kuvasz.verbs import plan as verb
    from kuvasz.verbs import remote

    loaded = _asked(context, config, settings)
    found = verb.plans(loaded.config, loaded.place_of)
    redact = Redactor(loaded.secrets)
    if as_json:
        _print_json(verb.as_json(found), redact)
    else:
        print(redact(remote.foretold(loaded.config) + verb.render(found)))
    raise typer.Exit(verb.exit_code(found))


@app.command("discover")
def discover(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option("--url", help="Of any database; else: the map's.", show_default=False)
    ] = None,
    tables: PatternOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tables of a database, or of all sources of the map: size, key, and what is to be decided of them."""
    from kuvasz.verbs.maps import discover as verb

    has_map = url is None or bool(config or _globals(context).config)
    loaded = _loaded(context, config, settings) if has_map else None
    map_, redact = (loaded.config, Redactor(loaded.secrets)) if loaded else (None, Redactor())
    if url is not None:
        found = verb.of_url(verb.filled(url), tables or (), map_)
    else:
        assert map_ is not None
        found = verb.of_map(map_, tables or ())
    if as_json:
        _print_json(verb.as_json(found), redact)
    else:
        print(redact(verb.render(found)))
    raise typer.Exit(verb.exit_code(found))


@app.command("init")
def init(
    url: Annotated[str, typer.Option("--url", help="Of the database; its password is not written.")],
    tables: PatternOption = None,
    is_all: Annotated[bool, typer.Option("--all-tables", help="All tables, as without --tables.")] = False,
    excepted: Annotated[
        list[str] | None, typer.Option("--except", help="None of these: 'audit.*'.", show_default=False)
    ] = None,
    database: Annotated[
        str | None, typer.Option("--database", help="Its name in the map, and in the slot's.", show_default=False)
    ] = None,
    sid: Annotated[str | None, typer.Option("--sid", help="The source's id in the rows.", show_default=False)] = None,
    has_patterns: Annotated[
        bool, typer.Option("--patterns", help="Write patterns, which take in later tables, too.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A new file, instead of stdout.", show_default=False)
    ] = None,
) -> None:
    """Look at a database and write a map of it, with a comment for what is to be decided."""
    from kuvasz.verbs.maps import init as verb

    if is_all and tables:
        raise ConfigError("--all-tables and --tables say different things", hint="give one of them")
    request = verb.MapRequest(
        url=url, tables=tuple(tables or ()), excepted=tuple(excepted or ()), database=database, sid=sid,
        has_patterns=has_patterns,
    )  # fmt: skip
    made = verb.run(request, output)
    print(made.text if output is None else made.render(output), end="" if output is None else "\n")


@app.command("verify")
def verify(
    context: typer.Context,
    table: Annotated[str | None, typer.Option("--table", help="Only this table.", show_default=False)] = None,
    sid: Annotated[str | None, typer.Option("--sid", help="Only this source.", show_default=False)] = None,
    is_fixing: Annotated[bool, typer.Option("--fix", help="Mend what differs, in one commit per table.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare sources and lake row by row, beside a running kuvasz or without; exit 4 if they differ."""
    from kuvasz.verbs import verify as verb

    loaded = _loaded(context, config, settings)
    with verb.progress() as on_progress:
        found = verb.reports(loaded.config, table=table, sid=sid, is_fixing=is_fixing, on_progress=on_progress)
    redact = Redactor(loaded.secrets)
    if as_json:
        _print_json(verb.as_json(found), redact)
    else:
        print(redact(verb.render(found)))
    raise typer.Exit(verb.exit_code(found))


@app.command("rejects")
def rejects(
    context: typer.Context,
    table: Annotated[str | None, typer.Option("--table", help="Only of this table.", show_default=False)] = None,
    sid: Annotated[str | None, typer.Option("--sid", help="Only of this source.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most, the newest.")] = 100,
    retry: Annotated[
        bool, typer.Option("--retry", help="Compare their tables with the sources, and bring in what fits by now.")
    ] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the rows that were left out because they do not fit; --retry brings in what fits by now, else exit 4."""
    from kuvasz.verbs import verify as verify_verb
    from kuvasz.verbs.lake import rejects as verb

    loaded = _loaded(context, config, settings)
    redact = Redactor(loaded.secrets)
    if not retry:
        found = verb.rows(loaded.config, table=table, sid=sid, limit=limit)
        _print_json(verb.as_json(found), redact) if as_json else print(redact(verb.render(found, loaded.config)))
        return
    with verify_verb.progress() as on_progress:
        reports = [
            report
            for target, source in verb.tables(loaded.config, table=table, sid=sid)
            for report in verify_verb.reports(
                loaded.config, table=target, sid=source, is_fixing=True, on_progress=on_progress
            )
        ]
    if as_json:
        _print_json(verify_verb.as_json(reports), redact)
    else:
        print(redact(verify_verb.render(reports) if reports else verb.none_known(loaded.config)))
    raise typer.Exit(verb.exit_code(reports))


@app.command("status")
def status(
    context: typer.Context,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second until Ctrl-C.")] = False,
) -> None:
    """Show what the running kuvasz does: sources, tables, positions, lag, errors; exit 1 or 5 if any is in error."""
    from rich.console import Console
    from rich.live import Live

    from kuvasz.verbs import remote

    loaded = _loaded(context, config, settings)
    answer = remote.status(loaded.config)
    if not watch:
        if as_json:
            _print_json(answer)
        else:
            # What is read by a program, or kept in a file, is not folded at 80 columns.
            width = None if sys.stdout.isatty() else _UNFOLDED
            Console(highlight=False, soft_wrap=True, width=width).print(remote.render(answer))
        raise typer.Exit(remote.exit_code(answer))
    if as_json:
        while True:
            print(json.dumps(answer), flush=True)
            time.sleep(1.0)
            answer = remote.status(loaded.config)
    with Live(remote.render(answer), console=Console(highlight=False), refresh_per_second=2) as live:
        while True:
            time.sleep(1.0)
            live.update(remote.render(remote.status(loaded.config)))


TableOption = Annotated[
    str | None, typer.Option("--table", help="The table, as the source or the lake calls it.", show_default=False)
]
SidOption = Annotated[
    str | None, typer.Option("--sid", help="Of this source alone; without --table: all of it.", show_default=False)
]


def _steering(verb: str, told: str) -> None:
    """Add a verb that steers tables; all of them take the same options."""

    @app.command(verb, help=told)
    def steer(
        context: typer.Context, table: TableOption = None, sid: SidOption = None, config: ConfigOption = None,
        settings: SetOption = None, as_json: JsonOption = False,
    ) -> None:  # fmt: skip
        _command(_loaded(context, config, settings), verb, table, sid, as_json=as_json)


_steering("pause", "Have tables stay where they are until `resume`, over restarts too; their changes are parked.")
_steering("resume", "Let paused tables follow again, from where they are.")
_steering("retry", "Have the running kuvasz try tables again that are in error.")
_steering("resync", "Copy tables again; what the lake has of them stays until the new rows replace it at once.")


@app.command("reload")
def reload(
    context: typer.Context, config: ConfigOption = None, settings: SetOption = None, as_json: JsonOption = False,
    is_trial: Annotated[bool, typer.Option("--dry-run", help="Only show what differs.")] = False,
) -> None:  # fmt: skip
    """Have the running kuvasz go by what the map has now: sources and tables that differ, without a restart."""
    from kuvasz.verbs import remote

    loaded = _loaded(context, config, settings)
    answer = remote.reload(loaded.config, is_trial=is_trial)
    if as_json:
        _print_json(answer)
    else:
        print(remote.differences(answer))


@app.command("cut")
def cut(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Option("--name", help="The tags are cut_NAME; else by the time.", show_default=False)
    ] = None,
    database: Annotated[
        str | None, typer.Option("--database", help="Only this group of the map.", show_default=False)
    ] = None,
    keep: Annotated[
        str | None, typer.Option("--keep", help="For how long it is kept, 1d otherwise.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tag all tables of the running kuvasz at whole transactions of one moment."""
    from kuvasz.verbs import remote

    loaded = _loaded(context, config, settings)
    answer = remote.cut(loaded.config, name=name, database=database, keep=keep)
    if as_json:
        _print_json(answer)
    else:
        print(remote.cut_lines(answer))
    raise typer.Exit(int(bool(answer.get("silent"))))


@app.command("publish")
def publish(  # noqa: PLR0913 (its options)
    context: typer.Context,
    table: Annotated[
        str | None, typer.Option("--table", help="Only these: * stands for any text.", show_default=False)
    ] = None,
    branch: Annotated[
        str | None, typer.Option("--branch", help="Only tables that the map has on this one.", show_default=False)
    ] = None,
    cut: Annotated[
        str | None, typer.Option("--cut", help="Not the newest, but what this cut has tagged.", show_default=False)
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing, and say what would be.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also tables of which a source is in error, or not copied yet.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--verify", help="Compare them with their sources first; only those that are equal.")
    ] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have main show what tables have on the branch that is written; in the running kuvasz, if one answers."""
    from kuvasz.verbs import verify as verify_verb
    from kuvasz.verbs.lake import publish as verb

    loaded = _loaded(context, config, settings)
    with verify_verb.progress() if compare else contextlib.nullcontext() as comparing:
        outcomes = verb.run(
            loaded.config, table=table, branch=branch, cut=cut, is_trial=check, is_forced=force, comparing=comparing,
        )  # fmt: skip
    redact = Redactor(loaded.secrets)
    if as_json:
        _print_json(outcomes, redact)
    else:
        print(redact(verb.render(outcomes, is_trial=check)))
    raise typer.Exit(verb.exit_code(outcomes))


@app.command("wait")
def wait(  # noqa: PLR0913 (its options)
    context: typer.Context,
    through: Annotated[
        str | None, typer.Option("--through", help="A time of the sources' commits, UTC unless it says otherwise.")
    ] = None,
    lsns: Annotated[
        list[str] | None, typer.Option("--lsn", help="sid:0/16B3748; may be given for several.", show_default=False)
    ] = None,
    table: TableOption = None,
    sid: SidOption = None,
    timeout: Annotated[str, typer.Option("--timeout", help="How long; 0 looks once.")] = "10m",
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until the lake has all that the sources have now, or had at a moment; exit 1 if it takes too long."""
    from kuvasz.verbs import wait as verb

    loaded = _loaded(context, config, settings)
    outcome = verb.run(loaded.config, through=through, lsns=lsns or (), table=table, sid=sid, timeout=timeout)
    if as_json:
        _print_json(verb.as_json(outcome))
    else:
        print(verb.render(outcome))
    raise typer.Exit(verb.exit_code(outcome))


@app.command("asof")
def asof(
    context: typer.Context,
    at: Annotated[
        str | None, typer.Option("--time", help="What had committed by then, UTC unless it says otherwise.")
    ] = None,
    lsns: Annotated[
        list[str] | None,
        typer.Option(
            "--lsn", help="sid:0/16B3748: what committed before; may be given for several.", show_default=False
        ),
    ] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only this one.", show_default=False)] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which snapshot of each table shows a moment of the sources, and how to read it; exit 1 if one is gone."""
    from kuvasz.verbs import asof as verb

    loaded = _loaded(context, config, settings)
    moment, found = verb.tables(loaded.config, time=at, lsns=lsns or (), table=table)
    if as_json:
        _print_json(verb.as_json(moment, found))
    else:
        print(verb.render(moment, found))
    raise typer.Exit(verb.exit_code(found))


@app.command("trace")
def trace(
    context: typer.Context,
    table: Annotated[str, typer.Option("--table", help="The table, as the source or the lake calls it.")],
    key: Annotated[
        list[str],
        typer.Option("--key", help="A value for each column of the key, in its order, or column=value."),
    ],
    sid: Annotated[str | None, typer.Option("--sid", help="Only rows of this source.", show_default=False)] = None,
    at_source: Annotated[bool, typer.Option("--at-source", help="Ask what the source has of it now, too.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the life of a row: each snapshot in which it came, changed, moved or went; exit 1 if there is none."""
    from kuvasz.lake.files.spared import spare_pandas
    from kuvasz.verbs.lake import trace as verb

    spare_pandas()
    loaded = _loaded(context, config, settings)
    found = verb.tables(loaded.config, table=table, key=key, sid=sid, at_source=at_source)
    redact = Redactor(loaded.secrets)
    if as_json:
        _print_json({"tables": found}, redact)
    else:
        print(redact(verb.render(found)))
    raise typer.Exit(verb.exit_code(found))


@app.command("notes")
def notes(
    context: typer.Context, table: TableOption = None, sid: SidOption = None, config: ConfigOption = None,
    settings: SetOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Show what is noted of each source in the lake's tables: how far it is, its columns, its rows' rule."""
    from kuvasz.verbs.lake import notes as verb

    found = verb.tables(_loaded(context, config, settings).config, table=table, sid=sid)
    if as_json:
        _print_json(found)
    else:
        print(verb.render(found))


def _command(
    loaded: Loaded, verb: str, table: str | None, sid: str | None, database: str | None = None, *, as_json: bool
) -> None:  # fmt: skip
    from kuvasz.admin.commands import VERBS
    from kuvasz.verbs import offline, remote

    if table is None and sid is None:
        raise ConfigError(f"kuvasz {verb}: which table?", hint="name it: --table items, or a source: --sid eu")
    try:
        answer = remote.command(loaded.config, verb, table=table, sid=sid, database=database)
    except (remote.NotRunning, ConfigError) as unasked:
        if verb not in offline.VERBS:
            if isinstance(unasked, ConfigError):
                raise
            hint = "a start tries everything again by itself: kuvasz --config …"
            raise remote.NotRunning(f"{unasked.message}; there is nothing to {verb}", hint=hint) from unasked
        try:
            answer = offline.command(loaded.config, verb, table=table, sid=sid, database=database)
        except StateTaken:
            if isinstance(unasked, ConfigError):  # one runs, and says nowhere that it can be asked
                raise unasked from None
            raise
    if as_json:
        _print_json(answer)
        return
    done = next(known.done for known in VERBS if known.name == verb)
    tables = ", ".join(f"{one['target']} of {one['source']}" for one in answer["tables"])
    where = "no kuvasz runs here: noted for its next start" if answer.get("is_noted") else "see `kuvasz status`"
    print(escapes.one_line(f"{done}: {tables}; {where}"))
    for told in answer.get("silent", ()):
        print(escapes.one_line(f"not asked: {told}"))


@app.command("maintain")
def maintain(
    context: typer.Context,
    table: Annotated[str | None, typer.Option("--table", help="Only this one.", show_default=False)] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    full: Annotated[bool, typer.Option("--full", help="Leave no dead row and no delete file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Merge files, expire snapshots and remove orphans now: in the running kuvasz, or here if none answers."""
    from kuvasz.verbs import maintain as verb

    loaded = _loaded(context, config, settings)
    outcomes = verb.run(loaded.config, table, full=full)
    redact = Redactor(loaded.secrets)
    if as_json:
        _print_json(outcomes, redact)
    else:
        print(redact(verb.render(outcomes)))
    raise typer.Exit(verb.exit_code(outcomes))


@app.command("support")
def support(
    context: typer.Context,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A new file, or a folder for it.", show_default=False)
    ] = None,
    log_file: Annotated[
        Path | None,
        typer.Option("--log-file", help="What stderr of kuvasz is kept in; else: log.file.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an archive for a bug report: what can be known within seconds, without secrets and values of rows."""
    from kuvasz.verbs.support import support as verb

    made = verb.run(_loaded(context, config, settings), output, log_file)
    if as_json:
        _print_json(verb.as_json(made))
    else:
        print(verb.render(made))
    if made.is_under_way:  # Python waits for threads that wait for a server, however long
        sys.stdout.flush()
        os._exit(0)


source = typer.Typer(help="The sources of the map: listed, added, dropped, erased.", no_args_is_help=True)
app.add_typer(source, name="source")

GroupOption = Annotated[
    str | None, typer.Option("--database", help="Only of this group; * stands for any text.", show_default=False)
]
SourceOption = Annotated[
    str | None,
    typer.Option("--sid", help="By sid, name or tenant; * stands for any text.", show_default=False),
]


@source.command("list")
def source_list(
    context: typer.Context, database: GroupOption = None, sid: SourceOption = None, config: ConfigOption = None,
    settings: SetOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """List sources and tenants, and how they are where a kuvasz runs."""
    _show_sources(_loaded(context, config, settings), database, sid, as_json=as_json, with_tables=False)


@source.command("show")
def source_show(
    context: typer.Context, database: GroupOption = None, sid: SourceOption = None, config: ConfigOption = None,
    settings: SetOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Show sources or tenants with their tables."""
    _show_sources(_loaded(context, config, settings), database, sid, as_json=as_json, with_tables=True)


def _show_sources(
    loaded: Loaded, database: str | None, sid: str | None, *, as_json: bool, with_tables: bool
) -> None:  # fmt: skip
    from kuvasz.admin.sources.mapped_url import SourceSelection
    from kuvasz.verbs.sources import listing as verb

    found = verb.run(loaded.config, SourceSelection(database=database, sid=sid), with_tables=with_tables)
    redact = Redactor(loaded.secrets)
    if as_json:
        _print_json(found, redact)
    else:
        print(redact(verb.render(found)))


@source.command("add")
def source_add(  # noqa: PLR0913 (its options)
    context: typer.Context,
    database: Annotated[str, typer.Option("--database", help="Its group, which says what tables it has.")],
    url: Annotated[str, typer.Option("--url", help="Where it is, as the map is to have it: with ${VAR} or so.")],
    sid: Annotated[str | None, typer.Option("--sid", help="The source's id in the rows.", show_default=False)] = None,
    replication_url: Annotated[
        str | None,
        typer.Option(
            "--replication-url",
            help="Who replicates, if that is another role: 'postgresql://slots:${PW}@'.",
            show_default=False,
        ),
    ] = None,
    schemas: Annotated[
        str | None, typer.Option("--schemas", help="A schema per tenant: 'tenant_(.+)'.", show_default=False)
    ] = None,
    is_unchecked: Annotated[bool, typer.Option("--no-check", help="Do not look at it before.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look at a source, write it into the map's file, and have the running kuvasz begin it."""
    from kuvasz.verbs.sources import adding as verb

    loaded = _loaded(context, config, settings)
    new = verb.SourceEntry(database=database, url=url, sid=sid, schemas=schemas, replication_url=replication_url)
    answer = verb.run(loaded, new, is_checked=not is_unchecked)
    redact = Redactor(loaded.secrets)
    if as_json:
        _print_json(answer, redact)
    else:
        print(escapes.lines(redact(verb.render(answer))))


@source.command("drop")
def source_drop(
    context: typer.Context,
    database: GroupOption = None,
    sid: SourceOption = None,
    drops_slot: Annotated[
        bool | None,
        typer.Option(
            "--drop-slot/--keep-slot", help="Slot and publication; else as `map.drop_removed` says.",
            show_default=False,
        ),
    ] = None,
    is_sure: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Take sources out of the map's file, and have the running kuvasz let go of them; their rows stay."""
    from kuvasz.admin.sources.mapped_url import SourceSelection
    from kuvasz.verbs.sources import dropping as verb

    loaded = _loaded(context, config, settings)
    answer = verb.run(loaded, SourceSelection(database=database, sid=sid), drops_slot=drops_slot, is_sure=is_sure)
    redact = Redactor(loaded.secrets)
    if as_json:
        _print_json(answer, redact)
    else:
        print(escapes.lines(redact(verb.render(answer))))
    raise typer.Exit(verb.exit_code(answer))


@source.command("erase")
def source_erase(  # noqa: PLR0913 (its options)
    context: typer.Context,
    sid: Annotated[
        str | None, typer.Option("--sid", help="The tenant, by its sid; or whose row.", show_default=False)
    ] = None,
    database: GroupOption = None,
    table: Annotated[
        str | None,
        typer.Option("--table", help="Only a row of this table, whose --key is given.", show_default=False),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            help="A value for each column of the row's key, in its order, or column=value.",
            show_default=False,
        ),
    ] = None,
    with_tags: Annotated[
        bool, typer.Option("--with-tags", help="Remove tags and branches that hold older snapshots; else: refuse.")
    ] = False,
    with_unclear: Annotated[
        bool,
        typer.Option(
            "--with-unclear", help="With --key: rejected rows as well whose keys do not tell whose they are."
        ),
    ] = False,
    sign_with: Annotated[
        Path | None,
        typer.Option("--sign-with", help="A private key (Ed25519, PEM) to sign the receipt.", show_default=False),
    ] = None,
    is_sure: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a tenant's rows, or one row, for good while kuvasz is stopped, with a receipt; exit 1 if any is left."""
    from kuvasz.admin.sources.mapped_url import SourceSelection
    from kuvasz.lake.java.signing_key import SigningKey
    from kuvasz.verbs.sources import erasing as verb
    from kuvasz.verbs.sources import row_erasing

    loaded = _loaded(context, config, settings)
    key_file = None if sign_with is None else SigningKey.read(sign_with)
    if table is None and not key:
        choice = SourceSelection(database=database, sid=sid)
        receipt = verb.run(loaded, choice, is_sure=is_sure, with_tags=with_tags, signs_with=key_file)
    else:
        asked = row_erasing.ErasureRequest(
            table=table, key=tuple(key or ()), sid=sid, database=database, with_unclear=with_unclear
        )
        receipt = row_erasing.run(loaded.config, asked, is_sure=is_sure, with_tags=with_tags, signs_with=key_file)
    redact = Redactor(loaded.secrets)
    if as_json:
        _print_json(receipt, redact)
    else:
        print(escapes.lines(redact(verb.render(receipt))))
    raise typer.Exit(verb.exit_code(receipt))


@source.command("drift")
def source_drift(
    context: typer.Context, database: GroupOption = None, sid: SourceOption = None, config: ConfigOption = None,
    settings: SetOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Show which sources and tenants have tables unlike those of most of their group; exit 4 if any has."""
    from kuvasz.admin.sources.mapped_url import SourceSelection
    from kuvasz.verbs.sources import drift as verb

    loaded = _loaded(context, config, settings)
    found = verb.run(loaded.config, SourceSelection(database=database, sid=sid))
    redact = Redactor(loaded.secrets)
    if as_json:
        _print_json(verb.as_json(found), redact)
    else:
        print(redact(verb.render(found)))
    raise typer.Exit(verb.exit_code(found))


def _steering_sources(verb: str, told: str) -> None:
    """Add a verb that steers all tables of sources."""

    @source.command(verb, help=told)
    def steer(
        context: typer.Context, database: GroupOption = None, sid: SourceOption = None, config: ConfigOption = None,
        settings: SetOption = None, as_json: JsonOption = False,
    ) -> None:  # fmt: skip
        every = sid if sid is not None or database is None else "*"
        _command(_loaded(context, config, settings), verb, None, every, database, as_json=as_json)


_steering_sources("pause", "Have all tables of sources or tenants stay where they are until `source resume`.")
_steering_sources("resume", "Let paused tables of sources or tenants follow again.")


map_ = typer.Typer(help="The map where it is kept: taken in, given out, and as it was.", no_args_is_help=True)
app.add_typer(map_, name="map")


def _store(context: typer.Context, config: str | None) -> MapStore:
    from kuvasz.state.maps.named import named

    path = config or _globals(context).config
    if path is None:
        raise ConfigError("nobody said where the map is", hint="kuvasz --config sqlite:map.db map …")
    return named(path)


@map_.command("import")
def map_import(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The YAML file.", show_default=False)],
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a file's text where the map is kept, and have the running kuvasz go by it."""
    from kuvasz.verbs.maps import stored as verb

    outcome = verb.taken_in(_store(context, config), file, _overrides(context, settings))
    if as_json:
        _print_json(dataclasses.asdict(outcome))
    else:
        print(verb.told(outcome))


@map_.command("export")
def map_export(
    context: typer.Context,
    version: Annotated[
        int | None, typer.Option("--version", help="An earlier one: see `map versions`.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A new file, instead of stdout.", show_default=False)
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Give out the map's text as it is kept, with comments, references and all."""
    from kuvasz.verbs.maps import stored as verb

    text = _store(context, config).raw(version)
    if output is None:
        sys.stdout.buffer.write(text)
    else:
        verb.write_out(text, output)


@map_.command("versions")
def map_versions(context: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List what the map was, and who wrote it."""
    from kuvasz.verbs.maps import stored as verb

    found = _store(context, config).versions()
    if as_json:
        _print_json([one.as_json() for one in found])
    else:
        print(escapes.lines(verb.render(found)))


cluster = typer.Typer(help="The processes that have one map.", no_args_is_help=True)
app.add_typer(cluster, name="cluster")


@cluster.command("nodes")
def nodes(
    context: typer.Context, config: ConfigOption = None, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """List the processes of the cluster: which one replicates, and which stand by."""
    from kuvasz.verbs.cluster import nodes as verb

    loaded = _loaded(context, config, settings)
    found = verb.run(loaded.config)
    if as_json:
        _print_json(verb.as_json(found))
    else:
        print(verb.render(found))
    raise typer.Exit(verb.exit_code(found, is_group=loaded.config.cluster.group is not None))


@cluster.command("drain")
def drain(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="The process, as `kuvasz cluster nodes` names it.")],
    config: ConfigOption = None,
    settings: SetOption = None,
    is_over: Annotated[bool, typer.Option("--undo", help="It takes its share again.")] = False,
) -> None:
    """Have a process that reads give its sources to the others, and take none, until it is started again."""
    from kuvasz.verbs.cluster import drain as verb

    print(verb.run(_loaded(context, config, settings).config, node, is_over=is_over))


@cluster.command("forget")
def forget(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="The process, as `kuvasz cluster nodes` or `map_differs` names it.")],
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Forget a process that is gone for good: the others take what it held, also if its map was another one."""
    from kuvasz.verbs.cluster import forget as verb

    print(verb.run(_loaded(context, config, settings).config, node))


@cluster.command("groups")
def log_groups(
    context: typer.Context, config: ConfigOption = None, settings: SetOption = None, as_json: JsonOption = False
) -> None:
    """List the groups of the log: other deployments, with lakes of their own, that hear what is staged."""
    from kuvasz.verbs.cluster import groups as verb

    found = verb.run(_loaded(context, config, settings).config)
    if as_json:
        _print_json(verb.as_json(found))
    else:
        print(verb.render(found))


@cluster.command("retire")
def retire(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The group, as `kuvasz cluster groups` names it.")],
    config: ConfigOption = None,
    settings: SetOption = None,
    is_sure: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
) -> None:
    """Forget a group of the log whose processes are stopped: the log keeps nothing for it any more."""
    from kuvasz.verbs.cluster import groups as verb

    print(verb.retire(_loaded(context, config, settings).config, name, is_sure=is_sure))


@cluster.command("promote")
def promote(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The group, as `kuvasz cluster groups` names it.")],
    config: ConfigOption = None,
    settings: SetOption = None,
    former: Annotated[str, typer.Option("--former", help="What the first group is called then.")] = "former",
    is_sure: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
) -> None:
    """Have a group of the log take over the slots, as the first one, which becomes a group; both are stopped."""
    from kuvasz.verbs.cluster import groups as verb

    print(verb.promote(_loaded(context, config, settings).config, name, former, is_sure=is_sure))


@app.command("cleanup")
def cleanup(
    context: typer.Context,
    config: ConfigOption = None,
    settings: SetOption = None,
    is_sure: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Drop slot and publication of every source of the map."""
    from kuvasz.verbs import cleanup as verb

    loaded = _loaded(context, config, settings)
    steps, remaining = verb.run(loaded.config, is_sure=is_sure), verb.left(loaded.config)
    redact = Redactor(loaded.secrets)
    if as_json:
        _print_json(verb.as_json(steps, remaining), redact)
    else:
        print(redact(verb.render(steps, remaining)))
    raise typer.Exit(verb.exit_code(steps))


@app.command("demo", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def demo(context: typer.Context, config: ConfigOption = None) -> None:
    """Run three servers with live load, replicate them, and compare: --seconds, --rate, --seed."""
    from kuvasz.demo.run import main as run_demo

    path = config or _globals(context).config
    raise typer.Exit(run_demo([*(["--config", path] if path else []), *context.args]))


def _globals(context: typer.Context) -> _Globals:
    given = context.obj
    assert isinstance(given, _Globals)
    return given


def _overrides(context: typer.Context, settings: Sequence[str] | None) -> dict[str, str]:
    overrides = {}
    for text in (*_globals(context).settings, *(settings or ())):
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text}: no value", hint="write --set pipeline.workers=4")
        overrides[name] = value
    return overrides


def _loaded(context: typer.Context, config: str | None = None, settings: Sequence[str] | None = None) -> Loaded:
    """Return the configuration with the tables that its patterns take in, as they were seen last."""
    from kuvasz.verbs.maps import patterns

    return patterns.known(_read(context, config, settings))


def _asked(context: typer.Context, config: str | None, settings: Sequence[str] | None) -> Loaded:
    """Return the configuration with the tables that its patterns take in now."""
    from kuvasz.verbs.maps import patterns

    return patterns.asked(_read(context, config, settings))


def _read(context: typer.Context, config: str | None = None, settings: Sequence[str] | None = None) -> Loaded:
    """Read the configuration that was named before the verb or after it; what comes later wins."""
    from kuvasz.config import load
    from kuvasz.state.maps.named import named

    path = config or _globals(context).config
    overrides = _overrides(context, settings)
    if path is None and "databases" not in overrides and not os.environ.get("KUVASZ_DATABASES"):
        raise ConfigError(
            "there is no map", hint="name it: kuvasz --config map.yaml, or KUVASZ_CONFIG; `kuvasz --help` has more"
        )
    return load.load(None if path is None else named(path), None, overrides)


def _print_json(value: object, redact: Redactor | None = None) -> None:
    clean = value if redact is None else redact.clean(value)
    print(escapes.json(json.dumps(clean, indent=2, ensure_ascii=False, default=str)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors of ours end with their message and exit code.

    Args:
        arguments: Without the program's name; those of the process by default.
    """
    try:
        app(args=None if arguments is None else list(arguments), prog_name="kuvasz")
    except KuvaszError as error:
        _fail(error)
    except BaseExceptionGroup as group:
        found = first_of(group)
        if found is None:
            raise
        _fail(found)
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain of it when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _fail(error: KuvaszError) -> None:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


__all__ = ["app", "main"]
