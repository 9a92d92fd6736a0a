"""Every module has a test module of its own at the mirrored place, or says here where it is tested."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Module -> the tests that try it, because alone it does nothing that could be told right from wrong.
ELSEWHERE = {
    # Entries and wiring: started for real.
    "__main__.py": "acceptance/test_crash.py",
    "app.py": "integration/test_clone.py",
    "failpoints.py": "acceptance/test_crash.py",
    "sync/inspection.py": "integration/test_clone.py",
    "sync/source_sync.py": "integration/test_clone.py",
    "sync/renames.py": "integration/test_continuity.py",
    "sync/verification.py": "integration/test_verify.py",
    "sync/report.py": "integration/test_verify.py",
    "sync/alignment.py": "integration/test_verify_stuck.py",
    "sync/member_watch.py": "integration/test_members.py",
    "source/look.py": "integration/test_evolve.py",
    "source/members.py": "integration/test_members.py",
    "demo/__main__.py": "unit/demo/test_run.py",
    "demo/comparison.py": "integration/test_demo_comparison.py",
    "demo/servers.py": "unit/demo/test_run.py",
    "demo/shop.py": "unit/demo/test_load.py",
    "admin/observer.py": "integration/test_admin.py",
    "admin/server.py": "integration/test_admin.py",
    "admin/slotwatch.py": "integration/test_admin.py",
    "verbs/check.py": "integration/test_admin.py",
    "verbs/cleanup.py": "integration/test_admin.py",
    "verbs/lakeview.py": "integration/test_admin.py",
    "verbs/maintain.py": "integration/test_maintenance.py",
    "verbs/plan.py": "integration/test_admin.py",
    "verbs/remote.py": "integration/test_admin.py",
    "verbs/text.py": "integration/test_admin.py",
    "verbs/typetable.py": "integration/test_admin.py",
    "verbs/verify.py": "integration/test_verify.py",
    # Values and interfaces, without behaviour of their own.
    "model.py": "unit/route/test_assembler.py",
    "ports.py": "contract/test_lake.py",
    "config/problem.py": "unit/config/test_check.py",
    "lake/order.py": "contract/test_lake.py",
    "sync/basis.py": "integration/test_clone.py",
    "source/type_catalog.py": "integration/test_type_catalog.py",
    "source/type_facts.py": "integration/test_introspect.py",
    "source/fingerprint.py": "integration/test_introspect.py",
    "sync/surroundings.py": "integration/test_clone.py",
    "lake/versions.py": "contract/test_lake.py",
    # Parts of one whole, tried through its face.
    "lake/expressions.py": "integration/test_expressions.py",
    "fold/siphash_rows.py": "unit/fold/test_keys.py",
    "index/edit.py": "unit/index/test_positions.py",
    "index/manifest.py": "unit/index/test_positions.py",
    "index/records.py": "unit/index/test_positions.py",
    "index/run.py": "unit/index/test_positions.py",
    "index/store.py": "unit/index/test_positions.py",
    "lake/era.py": "unit/lake/test_chunks.py",
    "route/lane.py": "unit/route/test_assembler.py",
    "modes/dispatch.py": "contract/test_table_types.py",
    "lake/bag.py": "integration/test_keyless.py",
    "lake/history.py": "integration/test_history.py",
    "lake/recopy.py": "integration/test_history.py",
    # Made for Spark and a catalog: tried on them.
    "lake/beside.py": "integration/test_verify.py",
    "lake/catalog.py": "contract/test_iceberg.py",
    "lake/clone.py": "contract/test_lake.py",
    "lake/commit_stage.py": "contract/test_iceberg.py",
    "lake/comparing.py": "integration/test_verify.py",
    "lake/comparison.py": "integration/test_verify.py",
    "lake/events.py": "integration/test_verify_types.py",
    "lake/readers.py": "contract/test_lake.py",
    "lake/strays.py": "integration/test_verify.py",
    "lake/repair.py": "integration/test_verify.py",
    "lake/copy.py": "contract/test_lake.py",
    "lake/iceberg.py": "contract/test_lake.py",
    "lake/iceberg_table.py": "contract/test_iceberg.py",
    "lake/jvm_errors.py": "contract/test_iceberg.py",
    "lake/maintenance.py": "integration/test_maintenance.py",
    "lake/memory.py": "contract/test_lake.py",
    "lake/oneshot.py": "integration/test_maintenance.py",
    "lake/orphans.py": "contract/test_maintenance.py",
    "lake/past.py": "contract/test_rewound.py",
    "lake/swap.py": "contract/test_maintenance.py",
    "lake/table.py": "contract/test_iceberg.py",
    "lake/warmup.py": "contract/test_lake.py",
    "lake/write_stage.py": "contract/test_lake.py",
    # Made for a server: tried on one.
    "source/connection.py": "integration/test_reader.py",
    "source/drain.py": "integration/test_reader.py",
    "source/introspect.py": "integration/test_introspect.py",
    "source/partitions.py": "integration/test_partitions.py",
    "source/preflight.py": "integration/test_preflight.py",
    "source/privileges.py": "integration/test_preflight.py",
    "source/reader.py": "integration/test_reader.py",
    "source/server_check.py": "integration/test_preflight.py",
    "source/table.py": "integration/test_introspect.py",
    "source/window.py": "integration/test_verify.py",
}  # fmt: skip

MODULES = sorted(
    str(file.relative_to(ROOT / "kuvasz"))
    for file in (ROOT / "kuvasz").rglob("*.py")
    if file.name != "__init__.py" and "__pycache__" not in file.parts
)


def _mirror(module: str) -> Path:
    path = Path(module)
    return ROOT / "tests" / "unit" / path.parent / f"test_{path.name}"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_its_tests(module: str) -> None:
    mirror = _mirror(module)
    if module in ELSEWHERE:
        assert not mirror.exists(), f"{module} has {mirror.name}: take it out of ELSEWHERE"
        assert (ROOT / "tests" / ELSEWHERE[module]).exists(), f"{ELSEWHERE[module]} is gone"
    else:
        assert mirror.exists(), f"{module} has no {mirror.relative_to(ROOT)}"


def test_no_exception_is_for_a_module_that_is_gone() -> None:
    assert set(ELSEWHERE) <= set(MODULES)


def test_no_unit_test_is_for_a_module_that_is_gone() -> None:
    folder = ROOT / "tests" / "unit"
    tests = [file.relative_to(folder) for file in folder.rglob("test_*.py")]
    modules = {str(Path(test.parent) / test.name.removeprefix("test_")) for test in tests} - {"layout.py"}
    assert modules <= set(MODULES)
