from __future__ import annotations

from kuvasz.verify.report import Report


def test_what_differs_is_counted_and_nothing_else() -> None:
    report = Report(
        source="eu", table="public.items", target="shop.items", missing=1, extra=2, changed=4, doubled=8, faults=16,
        waiting=32, undecided=64, mended=128, left=256, gaps=512,
    )  # fmt: skip
    assert report.differences == 31


def test_a_report_of_nothing_has_no_difference() -> None:
    assert Report(source="eu", table="public.items", target="shop.items").differences == 0
