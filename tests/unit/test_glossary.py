"""Whoever reads a class's name finds what it means: in the field's words, ordinary ones, or docs/glossary.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.source_code import files, nodes

pytestmark = pytest.mark.text

ROOT = Path(__file__).parents[2]

#: Words of PostgreSQL, Iceberg, Spark and Python, and of everyday English, that mean here what they mean there.
ORDINARY = frozenset(
    """
    add address admin analyzer ancestor answer app append applied apply armed assembler audit backlog bad begin
    binding blocker body buckets builder busy bytes calls candidate catalog catching cells change changed changes
    check checkpoints classes clock clone close closed column columns command commit compare compared comparison
    complaints complete computed config connection consume context copied copies copy count counter counts current
    damaged data database dead decode definition delete deleted deletion difference different differing document
    done downstream drain drop earlier edit elements embedded empty engine entry
    error evaluated events evolution exported
    expression expressions failed failure fetch fetched field fields file files filled filter finding flat float
    flush folded folder foreign form format formatter full gathered gatherer gathering globals given gone group
    handle handover handshake held history iceberg import index input int internal interruption job jobs json jvm
    keepalive kernel key keys kind kuvasz lake large last late layout level lifetime limit line list listing live
    load loaded lock locked log logical logs loop lost maintainer maintenance manifest map mapped mask membership
    memory message messages metrics mismatch move moved name needed neighbours node not number numbered observer of
    offset offsets on one only open operations option options order ordered ordering origin orphans other out
    outcome output own ownership page parameter park parking part partition partitions parts pause pg pipeline plain
    plan planning policy position
    postgres preflight preparation problem progress projecting projection publication publications publish published
    put query range branches rates read reader readers reading recovery redactor refused rejoin relation relax
    removal removed rename renamed renames repair replaced replay replaying replica replication report request
    requests reset retry rewrite rights role round row rows rule run running schedule schema scope secret section
    seen selection sent server session
    setting settings setup severity share shared show shutdown signal signing slice slot snapshot sort source spark
    spec sqlite stage start state states status stderr step store stored stream stuck summarize swapped sync
    system table
    tables taken taking task text thread time timeline tls to token too trace tracing track transaction transactions
    transform truncate truncated truncation type unclear under undurable unique unknown unlogged unwritten up
    upstream url value variable vector verb verification versions view waiting wake warm watch watches way when
    widen window worker write writer writing written
    any hours new weekday
    first
    """.split()  # noqa: SIM905 (read as a text)
)

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*")


def names() -> set[str]:
    """Return the names of all classes."""
    return {node.name for file in files() for node in nodes(file) if isinstance(node, ast.ClassDef)}


def rows() -> dict[str, str]:
    """Return word -> file of the glossary."""
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| ([a-z, ]+) \| .* \| `(\S+)` \|$", page, re.MULTILINE)
    return {word: file for entry, file in found for word in entry.split(", ")}


def singular(word: str) -> str:
    """Return a word without the s of its plural."""
    return word if word.endswith("ss") else word.removesuffix("s")


def test_every_word_of_a_class_is_known() -> None:
    known = {singular(word) for word in (*ORDINARY, *rows())}
    unknown = {
        name: words
        for name in names()
        if (words := [word for word in map(str.lower, _WORD.findall(name)) if singular(word) not in known])
    }
    assert unknown == {}, "a row of docs/glossary.md, or an ordinary word"


def test_the_glossary_names_files_that_are_there() -> None:
    assert len(rows()) > 50
    assert [file for file in rows().values() if not (ROOT / "kuvasz" / file).is_file()] == []


def test_no_word_is_both_ours_and_ordinary() -> None:
    assert sorted(ORDINARY & rows().keys()) == []
