"""A file that is no private key in PEM is refused before Java is asked; what it signs, test_erase.py."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from kuvasz.errors import ConfigError
from kuvasz.lake.java.signing_key import SigningKey

BODY = "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC"  # RFC 8410 section 10.3


@pytest.mark.parametrize(
    "text",
    [
        "", "no key", f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{BODY}\n-----END ENCRYPTED PRIVATE KEY-----\n",
        f"-----BEGIN PUBLIC KEY-----\n{BODY}\n-----END PUBLIC KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\n!!!\n-----END PRIVATE KEY-----\n", "Schl\u00fcssel",
    ],
)  # fmt: skip
def test_what_is_no_private_key_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key.pem"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match="not a private key in PEM") as refused:
        SigningKey.read(file)
    assert "openssl genpkey" in str(refused.value)
    assert BODY not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.pem: cannot be read: No such file"):
        SigningKey.read(tmp_path / "none.pem")


def test_a_key_is_read(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text(f"-----BEGIN PRIVATE KEY-----\n{BODY}\n-----END PRIVATE KEY-----\n")
    assert isinstance(SigningKey.read(file), SigningKey)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_what_the_hint_asks_for_makes_one(tmp_path: Path) -> None:
    file = tmp_path / "erasures.pem"
    with pytest.raises(ConfigError) as refused:
        SigningKey.read(file)
    (command,) = re.findall(r"`(openssl [^`]+)`", str(refused.value))
    subprocess.run(shlex.split(command), cwd=tmp_path, check=True, capture_output=True)
    assert isinstance(SigningKey.read(file), SigningKey)
