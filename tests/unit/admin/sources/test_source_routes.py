from __future__ import annotations

from kuvasz.admin.sources.source_routes import SOURCE_ROUTES
from kuvasz.config.model import Role


def test_only_admins_change_the_map_and_its_file_has_to_be_writable() -> None:
    assert {route.name for route in SOURCE_ROUTES if route.writes_map} == {"source_add", "source_drop"}
    assert all((route.role is Role.ADMIN) is route.writes_map is route.changes for route in SOURCE_ROUTES)
