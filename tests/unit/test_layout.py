"""Every module has a test module of its own at the mirrored place, or says here where it is tested.

And tests stand on `tests/support` alone, never on each other.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.text

ROOT = Path(__file__).parents[2]

#: Module -> the tests that try it, because alone it does nothing that could be told right from wrong.
ELSEWHERE = {
    # Entries: a line each, started for real.
    "__main__.py": "acceptance/test_crash.py",
    "demo/__main__.py": "unit/demo/test_run.py",
    # Wiring: what is put together wrongly does nothing anywhere.
    "sync/parts.py": "integration/test_clone.py",
    "verify/mapped_tables.py": "integration/test_verify_schedule.py",
    # Real servers, one of which follows the other.
    "source/standby.py": "integration/test_standby_snapshot.py",
    "source/check/standby_check.py": "integration/test_copy_from_standby.py",
    "sync/tables/copy_server.py": "integration/test_copy_from_standby.py",
    # Values, names and ports, without a decision of their own.
    "ports.py": "contract/test_lake.py",
    "parking/ports.py": "contract/test_parking_logs.py",
    "tracing/mini_transaction.py": "unit/worker/test_worker.py",
    "state/ports.py": "contract/test_state.py",
    "admin/erasures/erasure_routes.py": "unit/admin/erasures/test_erasure_answers.py",
    "verbs/sources/erasure_run.py": "acceptance/test_erasures.py",
    "admin/pages/fleet_page.py": "unit/admin/pages/test_pages.py",
    "admin/pages/source_page.py": "unit/admin/pages/test_pages.py",
    "admin/pages/table_page.py": "unit/admin/pages/test_pages.py",
    "admin/pages/standing.py": "unit/admin/pages/test_pages.py",
    "admin/pages/page_routes.py": "unit/admin/pages/test_pages.py",
    "admin/pages/status_parts.py": "unit/admin/pages/test_pages.py",
    "admin/pages/action_pages.py": "unit/admin/pages/test_asked_by_form.py",
    "admin/api/form.py": "unit/admin/pages/test_asked_by_form.py",
    "state/verdicts/verdict_documents.py": "contract/test_state.py",
    "state/notices/notice_documents.py": "contract/test_state.py",
    "source/reading/facts.py": "unit/source/reading/test_reader.py",
    "source/drain/best.py": "unit/source/drain/test_plain.py",
    "lake/files/file_io.py": "unit/lake/files/test_store_access.py",
    "state/staged/slice_removal.py": "integration/test_long_log.py",
    "source/reading/ordered.py": "integration/test_staged_log.py",
    "source/reading/ends.py": "unit/source/reading/test_reader.py",
    "lake/java/versions.py": "contract/test_lake.py",
    "lake/jvm/credentials/catalog_login.py": "unit/lake/jvm/credentials/test_live_credentials.py",
    "lake/jvm/credentials/java_fields.py": "integration/test_live_credentials.py",
    "lake/jvm/credentials/jdbc_pool.py": "integration/test_stores.py",
    "lake/jvm/credentials/rest_session.py": "integration/test_live_credentials.py",
    "lake/format/schema_steps.py": "unit/lake/format/test_planning.py",
    "supply/hole.py": "unit/supply/test_verdict.py",
    # What they find is another's: only a lake with a past, or a server, has any of it.
    "verbs/catalogs/table_facts.py": "unit/verbs/catalogs/test_sqlite_catalog.py",
    "verbs/lake/trace.py": "integration/test_trace.py",
    "verbs/lake/row_places.py": "integration/test_trace.py",
    "lake/erasure/table_erasure.py": "integration/test_erase.py",
    "source/check/slot_age.py": "integration/test_initial.py",
    "sync/tables/earlier_start.py": "integration/test_initial.py",
    "source/row_lookup.py": "integration/test_trace.py",
    # Second bodies of ports: all that they promise is the port's contract, which needs neither server nor Spark here.
    "state/memory.py": "contract/test_state.py",
    "parking/memory.py": "contract/test_parking_logs.py",
    "lake/memory/lake.py": "contract/test_lake.py",
    "lake/memory/source_notes.py": "contract/test_lake.py",
    "lake/memory/write_stage.py": "contract/test_lake.py",
    "lake/memory/commit_stage.py": "contract/test_lake.py",
    "config/written/map_store.py": "contract/test_map_stores.py",
    **{f"state/maps/{name}.py": "contract/test_map_stores.py" for name in (
        "database_map", "map_table", "postgres_table", "sqlite_table",
    )},
    # The coordinator: what it keeps is the port's contract, who may is asked of a real one.
    **{f"state/coordinator/{name}.py": "contract/test_state.py" for name in (
        "address_document", "documents", "feed_documents", "file_document", "note_documents", "number_documents",
        "witness_documents",
    )},
    **{f"state/coordinator/{name}.py": "integration/test_cluster_lease.py" for name in (
        "adoption", "database", "heartbeat", "lease", "member", "nodes/node_list", "store",
    )},
    "state/coordinator/pieces.py": "contract/test_parking_logs.py",
    "parking/reached_log.py": "contract/test_parking_logs.py",
    "parking/coordinated_log.py": "contract/test_parking_logs.py",
    "parking/coordinated_logs.py": "contract/test_parking_logs.py",
    "state/shares/ports.py": "contract/test_group_holders.py",
    "state/shares/memory.py": "contract/test_group_holders.py",
    "state/shares/coordinated.py": "contract/test_group_holders.py",
    "state/lakes/ports.py": "contract/test_table_owners.py",
    "state/lakes/memory.py": "contract/test_table_owners.py",
    "state/lakes/coordinated.py": "contract/test_table_owners.py",
    "state/staged/ports.py": "contract/test_log_index.py",
    "state/staged/memory.py": "contract/test_log_index.py",
    "state/staged/coordinated.py": "contract/test_log_index.py",
    "state/staged/coordinated_group.py": "contract/test_log_groups.py",
    "state/staged/log_groups.py": "contract/test_log_groups.py",
    "state/staged/promotion.py": "contract/test_log_groups.py",
    "state/staged/order_proof.py": "contract/test_log_groups.py",
    "state/staged/holders.py": "integration/test_shared_sources.py",
    "staging/ports.py": "unit/staging/test_writer.py",
    "staging/stretch.py": "unit/staging/test_cutter.py",
    # One receives from a real server what the other one tells: each alone says nothing.
    "source/reading/staging.py": "integration/test_staged_stream.py",
    "verbs/cluster/standby.py": "acceptance/test_kept_indexes.py",
    "verbs/cluster/coordinator.py": "integration/test_cluster_lease.py",
    "verbs/cluster/drain.py": "integration/test_shared_sources.py",
    # One query each, made into values field by field: only a server says whether it is right.
    "source/commit_status.py": "integration/test_slots.py",
    "source/catalog/inventory.py": "integration/test_discover.py",
    "source/catalog/members.py": "integration/test_members.py",
    "source/catalog/mappable.py": "integration/test_patterns.py",
    "verbs/maps/patterns.py": "integration/test_patterns.py",
    "config/patterns/found_tables.py": "unit/config/patterns/test_expansion.py",
    "source/catalog/relation_files.py": "integration/test_continuity.py",
    "demo/shop.py": "unit/demo/test_load.py",
    # Calls into the JVM: only Iceberg says whether they are right.
    "lake/jvm/catalog.py": "contract/test_iceberg.py",
    "lake/jvm/remains/remains.py": "integration/test_erase.py",
    "lake/jvm/refs/branch.py": "contract/test_branches.py",
    "lake/iceberg/branches.py": "contract/test_branches.py",
    "lake/iceberg/remake.py": "integration/test_live_map.py",
    "lake/jvm/iceberg_table.py": "contract/test_iceberg.py",
    "lake/jvm/commit_files.py": "contract/test_commit_files.py",
    "lake/jvm/iceberg_classes.py": "contract/test_iceberg.py",
    "lake/jvm/plain_calls.py": "contract/test_iceberg.py",
    "lake/jvm/table_operations.py": "contract/test_joint_commit.py",
    "lake/jvm/joint/joint_commit.py": "contract/test_joint_commit.py",
    "lake/jvm/joint/staged.py": "contract/test_joint_commit.py",
    "lake/jvm/joint/jdbc_swap.py": "contract/test_joint_commit.py",
    "lake/jvm/joint/rest_transaction.py": "contract/test_joint_commit.py",
}  # fmt: skip

#: What is beside `kuvasz` is named with its folder.
MODULES = sorted(
    str(file.relative_to(root))
    for folder, root in ((ROOT / "kuvasz", ROOT / "kuvasz"), (ROOT / "supply", ROOT))
    for file in folder.rglob("*.py")
    if file.name != "__init__.py" and "__pycache__" not in file.parts
)


def _mirror(module: str) -> Path:
    path = Path(module)
    return ROOT / "tests" / "unit" / path.parent / f"test_{path.name}"


def test_every_module_has_its_tests() -> None:
    """One test of them all: each process that shares the tests collects every single one."""
    assert [fault for module in MODULES if (fault := _fault(module))] == []


def _fault(module: str) -> str:
    """Return what is wrong with the tests of a module, if anything."""
    mirror = _mirror(module)
    if module in ELSEWHERE and mirror.exists():
        return f"{module} has {mirror.name}: take it out of ELSEWHERE"
    if module in ELSEWHERE and not (ROOT / "tests" / ELSEWHERE[module]).exists():
        return f"{ELSEWHERE[module]} is gone"
    return "" if module in ELSEWHERE or mirror.exists() else f"{module} has no {mirror.relative_to(ROOT)}"


def test_no_exception_is_for_a_module_that_is_gone() -> None:
    assert set(ELSEWHERE) <= set(MODULES)


def test_no_unit_test_is_for_a_module_that_is_gone() -> None:
    folder = ROOT / "tests" / "unit"
    tests = [file.relative_to(folder) for file in folder.rglob("test_*.py")]
    of_the_house = {
        "layout.py",
        "house.py",
        "glossary.py",
        "requirements.py",
        "documents.py",
        "examples.py",
        "site.py",
        "hints.py",
        "references.py",
        "printed_requests.py",
        "deploy.py",
        "deploy/alerts.py",
        "deploy/chart.py",
        "deploy/compose.py",
        "deploy/dashboards.py",
        "deploy/healthcheck.py",
        "deploy/image_steps.py",
        "deploy/package.py",
        "deploy/printed_steps.py",
        "deploy/release.py",
    }
    modules = {str(Path(test.parent) / test.name.removeprefix("test_")) for test in tests} - of_the_house
    assert modules <= set(MODULES)


SUPPORT = ROOT / "tests" / "support"
OF_THE_TESTS = {
    file: file.read_text("utf-8")
    for folder in ("tests", "benchmarks")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if "__pycache__" not in file.parts
}


def test_a_room_of_tests_holds_tests_alone() -> None:
    rooms = [file for file in OF_THE_TESTS if ROOT / "tests" in file.parents and SUPPORT not in file.parents]
    others = {str(file.relative_to(ROOT)) for file in rooms if not file.name.startswith(("test_", "__init__"))}
    assert others == {"tests/conftest.py", "tests/contract/conftest.py"}, "what helps them goes to tests/support"


def test_tests_stand_on_support_and_never_on_each_other() -> None:
    other = re.compile(r"^ *(?:from|import) tests\b(?!\.support\b).*", re.MULTILINE)
    assert {file: found for file, text in OF_THE_TESTS.items() if (found := other.findall(text))} == {}


def test_there_is_one_way_to_wait() -> None:
    definition = re.compile(r"^(?:async )?def wait_until\b", re.MULTILINE)
    assert [file for file, text in OF_THE_TESTS.items() if definition.search(text)] == [SUPPORT / "waiting.py"]
