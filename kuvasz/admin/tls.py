"""What encrypts the HTTP server's connections: a certificate and its key, read again when their files change."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kuvasz.errors import ConfigError
from kuvasz.events import Event, EventLog

if TYPE_CHECKING:
    from kuvasz.config.model import TlsConfig

_log = EventLog(__name__)

#: Seconds between two looks at the files.
LOOK_S: Final = 1.0

#: Seconds a client has for the handshake.
HANDSHAKE_S: Final = 10.0


class Tls:
    """The certificate of one server. New connections get the one that was read last.

    Args:
        config: Where certificate and key are.

    Raises:
        ConfigError: They cannot be used.
    """

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._stamp = self._look()
        self._newest = self._read()
        self.context = self._read()  #: for the server; each handshake goes on with the newest one
        self.context.sni_callback = self._hand_over

    async def run(self) -> None:
        """Read the files again when they change, until cancelled; what cannot be used changes nothing."""
        while True:
            await asyncio.sleep(LOOK_S)
            stamp = await asyncio.to_thread(self._look)
            if stamp == self._stamp:
                continue
            self._stamp = stamp
            try:
                self._newest = await asyncio.to_thread(self._read)
            except ConfigError as error:
                _log.tell(Event.TLS_REFUSED, error=str(error))
            else:
                _log.tell(Event.TLS_RENEWED, certificate=self._config.certificate)

    def _hand_over(self, handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        handshake.context = self._newest

    def _read(self) -> ssl.SSLContext:
        """Return what the files make.

        Raises:
            ConfigError: They cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate, key = self._config.certificate, self._config.key
        try:
            context.load_cert_chain(certificate, key, password=_no_passphrase)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"server.tls: cannot use certificate {certificate} with key {key}: {_reason(error)}",
                hint="both are PEM files: the certificate with those that signed it behind it, and its key, without a"
                " passphrase",
            ) from error
        return context

    def _look(self) -> tuple[object, ...]:
        """Return what differs when a file was written again, or another one is in its place."""
        return tuple(map(_stamp, (self._config.certificate, self._config.key)))


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _no_passphrase() -> str:
    msg = "the key has a passphrase"
    raise ValueError(msg)


def _reason(error: OSError | ValueError) -> str:
    """Say why files cannot be used."""
    if isinstance(error, ssl.SSLError):
        return error.reason.lower().replace("_", " ") if error.reason else "no certificate or key in PEM"
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)


__all__ = ["HANDSHAKE_S", "LOOK_S", "Tls"]
