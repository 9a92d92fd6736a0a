"""The secret half of the seed by which keys are hashed: random, and kept beside the indexes that were made with it.

The public half is a property of the lake's table. With it alone somebody who may read the lake and write to a source
could make a row whose key has another row's hash: SipHash keeps that from no one who knows the whole key
(Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, section 1).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from kuvasz import private_folder

NAME = "seed"
_BYTES = 32


def secret_of(folder: Path) -> bytes:
    """Return the secret of a folder of indexes, made if there is none; whoever comes at the same time gets the same.

    Args:
        folder: The folder; made if it is missing.

    Raises:
        OSError: It can be neither read nor kept.
    """
    kept = folder / NAME
    with contextlib.suppress(FileNotFoundError):
        return kept.read_bytes()
    private_folder.make_state(folder)
    fresh = folder / f"{NAME}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        _write(fresh, secrets.token_bytes(_BYTES))
        _put(fresh, kept)
    finally:
        fresh.unlink(missing_ok=True)
    return kept.read_bytes()


def replace(folder: Path, secret: bytes) -> None:
    """Have a folder of indexes have another secret: what was hashed with the one before is not believed any more.

    Raises:
        OSError: It cannot be kept.
    """
    if secret_of(folder) != secret:
        fresh = folder / f"{NAME}.{os.getpid()}.{secrets.token_hex(4)}"
        _write(fresh, secret)
        fresh.replace(folder / NAME)


def _write(fresh: Path, secret: bytes) -> None:
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
        file.flush()
        os.fsync(file.fileno())


def _put(fresh: Path, kept: Path) -> None:
    """Give a file its name, unless another one has put something there, as far as the file system can tell."""
    try:
        os.link(fresh, kept)
    except FileExistsError:
        pass
    except OSError:  # some mounted volumes have no links
        if not kept.exists():
            fresh.rename(kept)


def of_table(secret: bytes, public: bytes) -> bytes:
    """Return the seed of a table's keys, as long as its public half."""
    return hashlib.blake2b(public, key=secret, digest_size=len(public)).digest()


def mark(seed: bytes) -> str:
    """Return what tells a seed from others and does not give it away, for whoever keeps what it hashed."""
    return hashlib.blake2b(seed, digest_size=8, person=b"kuvasz.seed").hexdigest()


__all__ = ["NAME", "mark", "of_table", "replace", "secret_of"]
