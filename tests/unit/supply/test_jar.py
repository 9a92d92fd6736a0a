from __future__ import annotations

import re

import pytest

from supply import jar
from supply.jar import Jar

DIGEST = "a" * 64
PLAIN = Jar(holder="kuvasz", group="org.g", artifact="a_2.13", version="1.0+b", sha256=DIGEST)
NATIVE = Jar(holder="pyspark", group="org.g", artifact="n", version="2", classifier="linux-x86_64", sha256=DIGEST)
INSIDE = Jar(holder=PLAIN.purl, group="org.h", artifact="i", version="3")


def test_a_lock_is_read_as_it_was_written() -> None:
    text = jar.write([NATIVE, INSIDE, PLAIN])
    assert text.splitlines()[-3:] == [
        f"pkg:maven/org.g/a_2.13@1.0%2Bb sha256:{DIGEST} of=kuvasz",
        "pkg:maven/org.h/i@3 in=pkg:maven/org.g/a_2.13@1.0%2Bb",
        f"pkg:maven/org.g/n@2?classifier=linux-x86_64 sha256:{DIGEST} of=pyspark",
    ]
    assert jar.read(text) == (PLAIN, INSIDE, NATIVE)
    assert [one.is_inside for one in (PLAIN, NATIVE, INSIDE)] == [False, False, True]
    assert (PLAIN.name, PLAIN.coordinate) == ("org.g:a_2.13", "org.g:a_2.13:1.0+b")


@pytest.mark.parametrize(
    "line",
    [
        "pkg:maven/org.g/a@1",
        f"pkg:maven/org.g/a sha256:{DIGEST} of=kuvasz",
        f"pkg:pypi/org.g/a@1 sha256:{DIGEST} of=kuvasz",
        "pkg:maven/org.g/a@1 of=kuvasz",
        f"pkg:maven/org.g/a@1 sha256:{DIGEST} of=elsewhere",
        "pkg:maven/org.g/a@1 more",
    ],
)
def test_a_line_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"no jar: {line}")):
        jar.read(line)
