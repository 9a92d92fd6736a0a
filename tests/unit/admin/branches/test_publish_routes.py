"""The route of the verb takes what the verb sends."""

from __future__ import annotations

from kuvasz.admin.branches.publish_routes import PUBLISH_ROUTES
from kuvasz.config.model import Role


def test_operators_publish_and_nothing_is_required() -> None:
    (route,) = PUBLISH_ROUTES
    assert (route.title, route.role) == ("POST /api/publish", Role.OPERATOR)
    assert route.body is not None
    assert [field.name for field in route.body.fields] == ["table", "branch", "cut", "dry_run", "force", "by"]
    assert not any(field.is_required for field in route.body.fields)
