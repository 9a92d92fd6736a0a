"""Certificates that sign themselves, made when they are needed."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclasses.dataclass(frozen=True)
class Certificate:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path

    def as_option(self) -> dict[str, str]:
        """Return what `server.tls` says of it."""
        return {"certificate": str(self.certificate), "key": str(self.key)}

    def write(self, name: str, passphrase: bytes | None = None) -> None:
        """Put another certificate and its key into the files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        signed = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .sign(key, hashes.SHA256())
        )
        hidden: serialization.KeySerializationEncryption = (
            serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
        )
        self.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden))
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def made(folder: Path, name: str = "kuvasz.example.org") -> Certificate:
    """Return a certificate of a name, in a folder."""
    found = Certificate(folder / f"{name}.crt", folder / f"{name}.key")
    found.write(name)
    return found
