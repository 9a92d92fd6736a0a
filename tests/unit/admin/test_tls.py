"""The HTTP server behind a certificate: clients that trust it, its exchange, and the verbs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
import uvloop
from cryptography import x509

from kuvasz.admin import tls
from kuvasz.admin.server import serve
from kuvasz.admin.tls import Tls
from kuvasz.config.model import Config, TlsConfig
from kuvasz.errors import ConfigError
from kuvasz.state.store import state_of
from kuvasz.verbs import remote
from tests.support import certificates
from tests.support.admin_world import AdminWorld
from tests.support.certificates import Certificate

T = TypeVar("T")

NAME = "kuvasz.example.org"


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return certificates.made(tmp_path, NAME)


@pytest.fixture
def world(tmp_path: Path, certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> AdminWorld:
    monkeypatch.setattr(tls, "LOOK_S", 0.02)
    return AdminWorld(tmp_path, tls=certificate.as_option(), hosts=[NAME])


def live(world: AdminWorld, body: Callable[[str], Awaitable[T]]) -> T:
    """Serve as the command does: on uvloop, with url and token in the state folder."""

    async def run() -> T:
        async with serve(world.app, state_of(world.app.config)) as server:
            assert server.url is not None
            async with asyncio.timeout(30):
                return await body(server.url)

    return uvloop.run(run())


async def shown(url: str) -> str:
    """Return the name in the certificate that is shown to a new connection."""
    host, port = url.removeprefix("https://").split(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    found = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    writer.close()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()
    return found.subject.rfc4514_string()


def test_who_trusts_the_certificate_is_answered_by_https_alone(world: AdminWorld, certificate: Certificate) -> None:
    async def ask(url: str) -> tuple[int, bool]:
        context = ssl.create_default_context(cafile=str(certificate.certificate))
        port = int(url.rpartition(":")[2])
        resolver = Resolver()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, resolver=resolver)) as client:
            async with client.get(f"https://{NAME}:{port}/livez") as answer:
                status = answer.status
            with pytest.raises(aiohttp.ClientError):
                await client.get(f"http://127.0.0.1:{port}/livez")
        return status, url.startswith("https://127.0.0.1:")

    assert live(world, ask) == (200, True)


class Resolver(aiohttp.abc.AbstractResolver):
    """Finds all names on this machine."""

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[Any]:
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": family, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        pass


def test_old_versions_of_tls_are_refused(certificate: Certificate) -> None:
    made = Tls(TlsConfig(**certificate.as_option()))
    assert made.context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_another_certificate_counts_when_both_files_are_there(
    world: AdminWorld, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kuvasz")

    def told(event: str) -> bool:
        return any(vars(record).get("event") == event for record in caplog.records)

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 (what is waited for is in the log)
            await asyncio.sleep(0.01)

    async def renew(url: str) -> list[str]:
        found = [await shown(url)]
        key = certificate.key.read_bytes()
        certificate.write("next.example.org")
        matching = certificate.key.read_bytes()
        await until(lambda: told("tls_renewed"))
        found.append(await shown(url))
        certificate.key.write_bytes(key)
        await until(lambda: told("tls_refused"))
        found.append(await shown(url))
        certificate.key.unlink()
        await asyncio.sleep(0.1)
        found.append(await shown(url))
        caplog.clear()
        certificate.key.write_bytes(matching)
        await until(lambda: told("tls_renewed"))
        return [*found, await shown(url)]

    assert live(world, renew) == [f"CN={NAME}", *["CN=next.example.org"] * 4]


def test_the_verbs_know_kuvasz_by_its_certificate_whatever_name_that_has(world: AdminWorld) -> None:
    async def ask(_: str) -> tuple[str, list[tuple[str, str]]]:
        status = await asyncio.to_thread(remote.status, world.app.config)
        await asyncio.to_thread(remote.command, world.app.config, "pause", table="items", sid=None)
        return status["phase"], world.commands

    assert live(world, ask) == ("starting", [("pause", "shop.items")])


def test_the_verbs_bring_their_token_to_nobody_else(world: AdminWorld, tmp_path: Path) -> None:
    other = certificates.made(tmp_path, "other.example.org")
    server = world.app.config.server.model_copy(update={"tls": TlsConfig(**other.as_option())})
    config = world.app.config.model_copy(update={"server": server})

    async def ask(url: str) -> str:
        with pytest.raises(remote.ForeignServer) as told:
            await asyncio.to_thread(remote.command, config, "pause", table="items", sid=None)
        assert world.commands == []
        return told.value.message.replace(url, "URL")

    assert live(world, ask) == (
        f"who answers at URL does not prove to be kuvasz by {other.certificate}: self-signed certificate"
    )


def test_a_verb_without_the_certificate_says_so(world: AdminWorld, certificate: Certificate) -> None:
    config: Config = world.app.config

    async def ask(_: str) -> list[str]:
        found = []
        for content in (None, "nonsense"):
            certificate.certificate.unlink() if content is None else certificate.certificate.write_text(content)
            with pytest.raises(ConfigError) as told:
                await asyncio.to_thread(remote.status, config)
            found.append(told.value.message)
        return found

    assert live(world, ask) == [
        f"server.tls.certificate: cannot use {certificate.certificate}: {reason}"
        for reason in ("no such file or directory", "no certificate in PEM")
    ]


@pytest.mark.parametrize("fault", ["gone", "nonsense", "another's", "passphrase"])
def test_files_that_cannot_be_used_end_the_start(certificate: Certificate, tmp_path: Path, fault: str) -> None:
    if fault == "gone":
        certificate.key.unlink()
    elif fault == "nonsense":
        certificate.certificate.write_text("nonsense")
    elif fault == "another's":
        certificate.key.write_bytes(certificates.made(tmp_path, "other.example.org").key.read_bytes())
    else:
        certificate.write(NAME, b"geheim")
    with pytest.raises(ConfigError) as told:
        Tls(TlsConfig(**certificate.as_option()))
    reasons = {
        "gone": "no such file or directory",
        "nonsense": "no certificate or key in PEM",
        "another's": "key values mismatch",
        "passphrase": "the key has a passphrase",
    }
    assert told.value.message == (
        f"server.tls: cannot use certificate {certificate.certificate} with key {certificate.key}: {reasons[fault]}"
    )
    assert told.value.hint == (
        "both are PEM files: the certificate with those that signed it behind it, and its key, without a passphrase"
    )
