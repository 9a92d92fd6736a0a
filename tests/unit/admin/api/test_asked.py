from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from kuvasz.admin.api.asked import BODY, CALLER, person
from kuvasz.admin.api.callers import Caller
from kuvasz.config.check import LOCAL
from kuvasz.config.model import Role


def request(caller: str, **body: str) -> web.Request:
    found = make_mocked_request("POST", "/api/pause")
    found[CALLER] = Caller(name=caller, role=Role.ADMIN)
    if body:
        found[BODY] = body
    return found


@pytest.mark.parametrize(
    ("caller", "by", "name"), [("ann", "bob", "ann"), (LOCAL, "bob", "bob"), (LOCAL, "b" * 200, "b" * 100)]
)
def test_a_token_says_who_asks_and_kuvaszs_own_verbs_on_whose_behalf(caller: str, by: str, name: str) -> None:
    assert person(request(caller, by=by)) == name


def test_a_request_without_a_body_is_somebodys_too() -> None:
    assert person(request("ann")) == "ann"
    assert person(request(LOCAL)) == "?"
