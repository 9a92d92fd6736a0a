from __future__ import annotations

import pytest

from kuvasz.source.check import transport


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        ("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("/run/postgresql", True), ("@abstract", True),
        ("10.0.0.1", False), ("2001:db8::1", False), ("", False), ("localhost.example.org", False),
    ],
)  # fmt: skip
def test_who_is_of_this_machine(address: str, is_local: bool) -> None:
    assert transport.is_local(address) is is_local


@pytest.mark.parametrize("address", ["127.0.0.1", "/tmp"])  # noqa: S108 (a place, not a file)
def test_nobody_is_between_this_machine_and_itself(address: str) -> None:
    assert transport.weakness(address, "disable", is_encrypted=False) == ""


@pytest.mark.parametrize(
    ("sslmode", "is_encrypted", "text"),
    [
        ("verify-full", True, ""),
        ("verify-ca", True, "any server that the authority has certified may answer"),
        ("require", True, "whoever is in between may answer"),
        ("prefer", True, "encrypted for as long as the server says so: whoever is in between may answer"),
        ("prefer", False, "not encrypted: whoever is in between may read and change what is sent"),
        ("disable", False, "not encrypted: whoever is in between may read and change what is sent"),
    ],
)
def test_what_somebody_in_between_could_do(sslmode: str, is_encrypted: bool, text: str) -> None:
    assert transport.weakness("10.0.0.1", sslmode, is_encrypted=is_encrypted) == text
