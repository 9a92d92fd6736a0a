from __future__ import annotations

from pathlib import Path

from kuvasz.admin.entries import numbered
from kuvasz.admin.entries.numbered import NumberedMap
from kuvasz.state.memory import MemoryNumbers
from tests.support.maps import loaded

MAP = """
databases:
- database: shop
  urls:
  - {url: "postgresql:///eu", sid: eu}
  - {url: "postgresql:///us", sid: us}
  tables: {items: , billing.prices: {type: append}}
- database: crm
  urls: [{url: "postgresql:///crm"}]
  tables: {items: {target: crm_items}}
"""


def of(folder: Path, text: str, numbers: MemoryNumbers) -> NumberedMap:
    return numbered.number(loaded(folder, text).config, numbers)


def test_entries_are_numbered_in_the_order_of_the_map(tmp_path: Path) -> None:
    found = of(tmp_path, MAP, MemoryNumbers())
    assert [(one.number, one.group.database) for one in found.databases] == [(1, "shop"), (2, "crm")]
    assert [(one.number, one.source) for one in found.urls] == [(1, "shop_eu"), (2, "shop_us"), (3, "crm")]
    assert [(one.number, one.database.number, str(one.table)) for one in found.tables] == [
        (1, 1, "public.items"), (2, 1, "billing.prices"), (3, 2, "public.items"),
    ]  # fmt: skip


def test_a_number_stays_with_its_entry_wherever_that_stands_and_however_it_is_written(tmp_path: Path) -> None:
    numbers = MemoryNumbers()
    of(tmp_path, MAP, numbers)
    first, _, second = MAP.partition("- database: crm")
    other = f"databases:\n- database: crm{second}" + first.removeprefix("\ndatabases:\n").replace(
        "{items: ,", "{new: , public.items: {type: history},"
    ).replace("postgresql:///us", "postgresql:///elsewhere")
    found = of(tmp_path, other, numbers)
    assert [one.number for one in found.databases] == [2, 1]
    assert [one.number for one in found.urls] == [3, 1, 2]
    assert [(one.number, one.key) for one in found.tables] == [
        (3, "items"), (4, "new"), (1, "public.items"), (2, "billing.prices"),
    ]  # fmt: skip
