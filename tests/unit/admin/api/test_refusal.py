from __future__ import annotations

import json

from kuvasz.admin.api.refusal import RequestRefused


def test_a_refusal_answers_with_what_is_wrong_and_what_to_do() -> None:
    answer = RequestRefused(404, "the map has no table 'a'", "it has: b").answer()
    assert answer.status == 404
    expected = {"code": "not_found", "error": "the map has no table 'a'", "hint": "it has: b"}
    assert json.loads(answer.text or "") == expected
