"""Pandas is loaded for who asks for it, and not with the first array."""

from __future__ import annotations

import subprocess
import sys

import pytest


def told(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.process
def test_pandas_is_loaded_for_who_asks_for_it() -> None:
    program = (
        "import sys; from kuvasz.lake.files.spared import spare_pandas; spare_pandas()\n"
        "import numpy, pyarrow as pa, pyarrow.dataset, pyarrow.parquet\n"
        "pa.array([1]), pa.array(numpy.zeros(2)), pa.table({'a': [1]}).sort_by('a'); print('pandas' in sys.modules)\n"
        "print(pa.table({'a': [1]}).to_pandas().a.sum(), 'pandas' in sys.modules)\n"
        "import pandas; print(pa.Table.from_pandas(pandas.DataFrame({'a': [7]}))['a'][0])\n"
    )
    assert told(program) == ["False", "1", "True", "7"]


@pytest.mark.process
def test_who_has_pandas_keeps_it() -> None:
    program = (
        "import pandas, pyarrow as pa; from kuvasz.lake.files.spared import spare_pandas; spare_pandas()\n"
        "print(pa.lib._pandas_api.have_pandas)\n"
    )
    assert told(program) == ["True"]


@pytest.mark.process
def test_other_threads_have_pandas_meanwhile() -> None:
    program = (
        "import threading; from kuvasz.lake.files.spared import without_pandas\n"
        "def other():\n    import pandas; print('there')\n"
        "with without_pandas():\n"
        "    try:\n        import pandas\n    except ModuleNotFoundError:\n        print('spared')\n"
        "    thread = threading.Thread(target=other); thread.start(); thread.join()\n"
        "import pandas; print('there')\n"
    )
    assert told(program) == ["spared", "there", "there"]
