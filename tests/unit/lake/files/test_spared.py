"""Pandas is loaded for who asks for it, and not with the first array; what is free is given back."""

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


@pytest.mark.process
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is asked")
def test_what_threads_have_freed_goes_back() -> None:
    program = (
        "import ctypes, sys, threading\n"
        "def size():\n    return int(open('/proc/self/statm').read().split()[1]) * 4096 >> 20\n"
        "if sys.argv[1:]:\n    from kuvasz.lake.files.spared import spare_heap; spare_heap()\n"
        "libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p; libc.free.argtypes = [ctypes.c_void_p]\n"
        "def used(count, bytes):\n"
        "    found = [libc.malloc(bytes) for _ in range(count)]\n"
        "    for one in found: ctypes.memset(one, 1, bytes)\n"
        "    for one in found: libc.free(one)\n"
        "before = size()\n"
        "used(1, 30 << 20)\n"  # from which glibc learns to keep as much
        "gate = threading.Barrier(6)\n"
        "def work():\n    gate.wait(); used(3, 7 << 20); gate.wait()\n"
        "threads = [threading.Thread(target=work) for _ in range(5)]\n"
        "for thread in threads: thread.start()\n"
        "gate.wait(); gate.wait(); print(size() - before)\n"
    )
    kept = int(told(program)[0])
    spared = int(told(f"import sys; sys.argv.append('spare')\n{program}")[0])
    assert spared <= 4, f"{spared} MB are kept, {kept} without"


@pytest.mark.process
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is asked")
def test_what_was_freed_between_what_is_in_use_goes_back_once_the_process_has_grown() -> None:
    program = (
        "import asyncio, ctypes, sys\n"
        "from kuvasz.lake.files.spared import keep_small\n"
        "def size():\n    return int(open('/proc/self/statm').read().split()[1]) * 4096 >> 20\n"
        "libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p; libc.free.argtypes = [ctypes.c_void_p]\n"
        "async def run():\n"
        "    before = size()\n"
        "    found = [libc.malloc(40_000) for _ in range(2000)]\n"
        "    for one in found: ctypes.memset(one, 1, 40_000)\n"
        "    for number, one in enumerate(found):\n"
        "        if number % 20: libc.free(one)\n"
        "    print(size() - before)\n"
        "    task = asyncio.create_task(keep_small(0.1)); await asyncio.sleep(1)\n"
        "    print(size() - before); task.cancel()\n"
        "asyncio.run(run())\n"
    )
    grown, left = map(int, told(program))
    assert grown > 60, "the pieces in between are kept"
    assert left < 20, f"{left} MB of {grown} are left"
