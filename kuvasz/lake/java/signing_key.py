"""A private key that signs what is to be believed later: Ed25519 (RFC 8032), by the JVM's own `java.security`."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from kuvasz.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

#: PKCS#8 without a password, as `openssl genpkey` writes it (RFC 7468 section 10).
_PEM = re.compile(r"-----BEGIN PRIVATE KEY-----(.*?)-----END PRIVATE KEY-----", re.DOTALL)

_HINT = "`openssl genpkey -algorithm ed25519 -out erasures.pem` makes one that kuvasz can use"


class SigningKey:
    """The signing key.

    Args:
        file: In PEM: PKCS#8, not encrypted.
        text: What the file has.

    Raises:
        ConfigError: It is no such key.
    """

    def __init__(self, file: Path, text: str) -> None:
        self._file = file
        found = _PEM.search(text)
        try:
            self._der = b"" if found is None else base64.b64decode("".join(found[1].split()), validate=True)
        except binascii.Error:
            self._der = b""
        if not self._der:
            raise ConfigError(f"{file}: not a private key in PEM, without a password", hint=_HINT)

    @classmethod
    def read(cls, file: Path) -> SigningKey:
        """Read a key.

        Raises:
            ConfigError: There is none.
        """
        try:
            return cls(file, file.read_text("ascii"))
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read: {error.strerror}", hint=_HINT) from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{file}: not a private key in PEM, without a password", hint=_HINT) from error

    def sign(self, session: SparkSession, text: str) -> str:
        """Return the signature of a text's UTF-8, in base64.

        Raises:
            ConfigError: The key is of another kind.
        """
        jvm: Any = session._jvm
        security = jvm.java.security
        try:
            key = security.KeyFactory.getInstance("Ed25519").generatePrivate(
                security.spec.PKCS8EncodedKeySpec(self._der)
            )
            signer = security.Signature.getInstance("Ed25519")
            signer.initSign(key)
        except Py4JJavaError as error:
            raise ConfigError(f"{self._file}: not a key of Ed25519", hint=_HINT) from error
        signer.update(text.encode())
        return base64.b64encode(bytes(signer.sign())).decode("ascii")


__all__ = ["SigningKey"]
