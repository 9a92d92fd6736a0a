from __future__ import annotations

import pytest

from kuvasz.admin.api.refusal import RequestRefused
from kuvasz.admin.entries.kept_password import leads_elsewhere, with_password

SHOWN = "postgresql://repl:***@a,b:5432/shop"


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("postgresql://repl:pw@a,b:5432/shop", "postgresql://repl:pw@a,b:5432/x?y=z"),
        ("postgresql://repl:${PW:-a/b?c@d}@a,b:5432/shop", "postgresql://repl:${PW:-a/b?c@d}@a,b:5432/x?y=z"),
        (
            "postgresql://${USER}:${file:/run/pw}@a,b:5432/${DB}",
            "postgresql://${USER}:${file:/run/pw}@a,b:5432/x?y=z",
        ),
    ],
)
def test_the_password_is_taken_as_it_is_written(raw: str, kept: str) -> None:
    assert with_password("postgresql://repl:***@a,b:5432/x?y=z", SHOWN, raw) == kept


@pytest.mark.parametrize(
    "given", ["postgresql://repl:***@c/shop", "postgresql://x:***@a,b:5432/shop", f"{SHOWN}?password=***"]
)
def test_the_password_goes_to_nobody_else(given: str) -> None:
    with pytest.raises(RequestRefused, match="none for that place"):
        with_password(given, SHOWN, "postgresql://repl:pw@a,b:5432/shop")


@pytest.mark.parametrize(
    "query",
    ["host=evil", "sslmode=require&h%6Fst=evil", "hostaddr=192.0.2.1", "port=1", "user=x", "service=evil", "host"],
)
def test_no_parameter_leads_the_password_elsewhere(query: str) -> None:
    """Those of a url's query outrank what stands before it (libpq, "Connection URIs")."""
    raw = "postgresql://repl:pw@a,b:5432/shop"
    with pytest.raises(RequestRefused, match="none for that place"):
        with_password(f"{SHOWN}?{query}", SHOWN, raw)
    with pytest.raises(RequestRefused, match="none for that place"):
        with_password(SHOWN, f"{SHOWN}?{query}", f"{raw}?{query}")
    assert with_password(f"{SHOWN}?{query}&sslmode=require", f"{SHOWN}?{query}", f"{raw}?{query}").endswith(
        "=require"
    )


def test_a_url_that_is_one_reference_has_no_password_to_take() -> None:
    with pytest.raises(RequestRefused, match="nobody knows which part"):
        with_password(SHOWN, SHOWN, "${URL}")
    assert with_password("postgresql://c/d", SHOWN, "${URL}") == "postgresql://c/d"


@pytest.mark.parametrize(
    ("given", "is_elsewhere"),
    [
        ("postgresql://me:mine@a,b:5432/other?sslmode=require", False), ("postgresql://a,b:5432/shop?user=x", False),
        ("postgresql://repl:pw@a,b/shop", True), ("postgresql://repl:pw@c/shop", True),
        ("postgresql://repl:pw@a,b:5432/shop?host=c", True),
    ],
)  # fmt: skip
def test_who_asks_is_no_place(given: str, is_elsewhere: bool) -> None:
    assert leads_elsewhere(given, SHOWN) is is_elsewhere
