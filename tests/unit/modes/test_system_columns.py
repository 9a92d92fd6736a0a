from __future__ import annotations

import pytest

from kuvasz.config import check
from kuvasz.model import TableType
from kuvasz.modes import system_columns


@pytest.mark.parametrize("table_type", TableType)
def test_the_configuration_keeps_the_same_names_free(table_type: TableType) -> None:
    assert check.RESERVED[table_type] == system_columns.names(table_type)
