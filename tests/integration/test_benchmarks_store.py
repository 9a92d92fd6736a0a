"""What is made of the requests that a store was asked, and the proxy that notes them."""

from __future__ import annotations

import asyncio
import io
import json

import pytest

from benchmarks import __main__ as harness
from benchmarks.store.proxy import Proxy
from benchmarks.store.requests import Kind, commits, counts, parse, price


def noted(method: str, name: str, at: int, until: int, query: str = "") -> str:
    """Return a line of the proxy's notes; times in ms."""
    target = f"/lake/warehouse/shop/orders/{name}{query}"
    return json.dumps({"at": at / 1000, "until": until / 1000, "method": method, "target": target, "status": 200,
                       "sent": 10, "received": 0, "connection": 1})  # fmt: skip


COMMIT = [
    noted("PUT", "data/a.parquet", 0, 40),
    noted("PUT", "data/a-dv.puffin", 41, 81),
    noted("PUT", "metadata/x-m0.avro", 90, 130),
    noted("PUT", "metadata/x-m1.avro", 91, 131),
    noted("PUT", "metadata/snap-1-x.avro", 92, 132),
    noted("PUT", "data/b.parquet", 100, 140),
    noted("PUT", "metadata/00001-y.metadata.json", 140, 180),
]


def test_the_chain_is_of_the_requests_that_do_not_overlap_and_leaves_out_the_next_rows():
    [commit] = commits(map(parse, COMMIT))

    assert commit.chain == 4
    assert commit.shape == "PUT data > PUT deletes > [PUT list, PUT manifest, PUT manifest] > PUT metadata"
    assert commit.seconds == pytest.approx(0.18)
    assert counts(commit.way)[Kind.PUT] == 6


def test_rows_that_were_written_during_a_commit_belong_to_the_next():
    later = [
        noted("PUT", "metadata/snap-2-z.avro", 200, 240),
        noted("PUT", "metadata/00002-z.metadata.json", 241, 281),
    ]

    _, second = commits(map(parse, [*COMMIT, *later]))

    assert second.shape == "PUT data > PUT list > PUT metadata"


def test_what_is_asked_before_rows_are_written_is_not_on_the_way():
    before = noted("GET", "metadata/00000-y.metadata.json", 0, 1)

    [commit] = commits(map(parse, [before, *COMMIT[1:]]))

    assert counts(commit.requests)[Kind.GET] == 1
    assert counts(commit.way)[Kind.GET] == 0


@pytest.mark.parametrize(
    ("method", "target", "kind"),
    [
        ("PUT", "/lake/t/data/a.parquet?partNumber=1&uploadId=u", Kind.PUT),
        ("POST", "/lake/t/data/a.parquet?uploads", Kind.POST),
        ("POST", "/lake?delete", Kind.DELETE),
        ("GET", "/lake?list-type=2&prefix=t", Kind.LIST),
        ("HEAD", "/lake/t/data/a.parquet", Kind.HEAD),
    ],
)
def test_requests_have_the_kinds_by_which_they_are_paid(method, target, kind):
    request = parse(json.dumps({**json.loads(COMMIT[0]), "method": method, "target": target}))

    assert request.kind is kind
    assert price([request] * 1000) == pytest.approx({Kind.HEAD: 0.0004, Kind.DELETE: 0}.get(kind, 0.005))


def test_the_proxy_hands_on_notes_and_takes_its_time():
    notes = io.StringIO()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"hello")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        writer.close()

    async def ask() -> list[bytes]:
        server = await asyncio.start_server(serve, "127.0.0.1")
        behind = await asyncio.start_server(Proxy(_port(server), 0.05, notes).serve, "127.0.0.1")
        reader, writer = await asyncio.open_connection("127.0.0.1", _port(behind))
        answers = []
        for _ in range(2):  # over one connection
            writer.write(b"PUT /lake/k HTTP/1.1\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
            answers.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"5\r\nhello\r\n0\r\n\r\n")
            answers.append(await reader.readuntil(b"abc"))
        writer.close()
        for one in (server, behind):
            one.close()
        return answers

    answers = asyncio.run(ask())

    assert answers[::2] == [b"HTTP/1.1 100 Continue\r\n\r\n"] * 2
    assert answers[1] == b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"
    first, second = map(json.loads, notes.getvalue().splitlines())
    assert first["connection"] == second["connection"]
    assert (first["method"], first["target"], first["sent"], first["received"]) == ("PUT", "/lake/k", 5, 3)
    assert first["until"] - first["at"] >= 0.045


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.postgres
def test_a_backlog_is_drained_into_the_store_and_its_requests_are_told(tmp_path):
    assert harness.main(["store-backlog-mixed", "--size", "tiny", "--delay", "5", "--out", str(tmp_path)]) == 0

    told = json.loads((tmp_path / "store-backlog-mixed.json").read_text())["figures"]
    found = {figure["name"]: figure["median"] for figure in told}
    assert found["chain, requests"] > 1
    assert found["PUT on the way"] > 3
    assert found["LIST on the way"] == 0
    assert found["ratio to local"] > 0


def _port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])
