from __future__ import annotations

import pytest

from kuvasz.decode.columns import column
from kuvasz.decode.refusals import ValueRefused
from tests.support import wires
from tests.support.wires import array, one_column


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"{}", []),
        (b"{NULL}", [None]),
        (b'{"NULL",null,""}', ["NULL", None, ""]),
        (b'{"a\\"b","\\\\","{x,y}",c d}', ['a"b', "\\", "{x,y}", "c d"]),
        (b"[0:1]={a,b}", ["a", "b"]),
        (b"[-2:-1]={a,NULL}", ["a", None]),
        (b'{"a\tb\nc"}', ["a\tb\nc"]),
        ("{ä,NULLE}".encode(), ["ä", "NULLE"]),
    ],
)
def test_arrays(text: bytes, value: list) -> None:
    assert column(one_column([None, text]), 0, array(wires.STRING)).to_pylist() == [None, value]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"}",
        b"a",
        b"{a",
        b"{,}",
        b"{a,}",
        b'{"a}',
        b'{"a"b}',
        b'{a"b}',
        b"{a}b}",
        b"[0:1]{a}",
        b"[x]={a}",
    ],
)
def test_what_is_no_array_is_refused(text: bytes) -> None:
    with pytest.raises(ValueRefused, match="not the text form"):
        column(one_column([text]), 0, array(wires.STRING))


@pytest.mark.parametrize("text", [b"{{1,2},{3,4}}", b"[1:1][0:1]={{1,2}}", b"{{{1}}}"])
def test_several_dimensions_are_refused(text: bytes) -> None:
    with pytest.raises(ValueRefused, match="array of several dimensions") as refused:
        column(one_column([b"{1}", text]), 0, array(wires.INT))
    assert (refused.value.row, refused.value.text) == (1, text.decode())


def test_a_delimiter_of_its_own() -> None:
    cells = one_column([b"{(1,1),(0,0);(2,2),(0,0)}"])
    assert column(cells, 0, array(wires.STRING, ";")).to_pylist() == [["(1,1),(0,0)", "(2,2),(0,0)"]]


def test_policies_reach_elements() -> None:
    cells = one_column([b"{infinity,2024-01-01}"])
    assert column(cells, 0, array(wires.DATE), out_of_range="null")[0].as_py()[0] is None
    with pytest.raises(ValueRefused, match="'infinity' in row 0"):
        column(cells, 0, array(wires.DATE))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"", []),
        (b'"a"=>"1", "b"=>NULL', [("a", "1"), ("b", None)]),
        (b'"a\\"b"=>"NULL", ""=>""', [('a"b', "NULL"), ("", "")]),
        (b'"=>"=>", "', [("=>", ", ")]),
    ],
)
def test_hstores(text: bytes, value: list) -> None:
    assert column(one_column([None, text]), 0, wires.HSTORE).to_pylist() == [None, value]


@pytest.mark.parametrize(
    "text", [b"a=>1", b'"a"', b'"a"=>', b'"a"=>"1",', b'"a"=>"1" "b"=>"2"', b'"a"=>NUL', b'"a"=>"1']
)
def test_what_is_no_hstore_is_refused(text: bytes) -> None:
    with pytest.raises(ValueRefused, match="not the text form"):
        column(one_column([text]), 0, wires.HSTORE)


def test_vectors() -> None:
    assert column(one_column([b"[1,-2.5,1e-05]", None]), 0, wires.VECTOR).to_pylist()[1] is None
    assert column(one_column([b"[1,-2.5]"]), 0, wires.VECTOR).to_pylist() == [[1.0, -2.5]]
    for text in (b"[1,NULL]", b"{1}", b"[1", b"[1,,2]"):
        with pytest.raises(ValueRefused):
            column(one_column([text]), 0, wires.VECTOR)


def test_a_bad_element_names_the_row_of_its_array() -> None:
    with pytest.raises(ValueRefused) as refused:
        column(one_column([b"{1,2}", None, b"{}", b"{3,x}"]), 0, array(wires.INT))
    assert (refused.value.row, refused.value.text) == (3, "x")
    with pytest.raises(ValueRefused) as refused:
        column(one_column([b'"a"=>"1"', b'"b"=>"\xff"']), 0, wires.HSTORE)
    assert refused.value.row == 1
