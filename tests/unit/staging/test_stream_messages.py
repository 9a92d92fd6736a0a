"""What is seen of many messages at once; see also `test_cutter`."""

from __future__ import annotations

from kuvasz.staging.stream_messages import StreamMessages, heard_at_most, is_same
from tests.support import pgoutput
from tests.support.pgoutput import begin, commit, data, keepalive, relation, row, truncate


def test_messages_are_told_apart() -> None:
    kind = data(b"Y" + (20_000).to_bytes(4, "big") + b"public\0mood\0")
    stream = [
        keepalive(9, reply=True), begin(100, xid=7, us=-5), kind, relation(3), row(3, "a"), row(1, "b", b"U"),
        truncate(2, 3), commit(100, 148), keepalive(160),
    ]  # fmt: skip
    found = StreamMessages(*pgoutput.gulp(stream))
    assert (found.begins.tolist(), found.commits.tolist(), found.keepalives.tolist()) == ([1], [7], [0, 8])
    assert found.begun(1) == (100, -5, 7)
    assert found.end_lsns(found.commits).tolist() == [148]
    assert (found.keepalive_lsn(8), found.wants_reply()) == (160, True)
    assert found.first_uses() == {3: 4, 1: 5, 2: 6}
    (described,) = found.described()
    assert (described.message, described.oid, described.description) == (3, 3, (kind, relation(3)))
    assert found.before(2)[0] == b"".join(stream[:2])
    assert found.behind(7)[0] == b"".join(stream[7:])
    assert found.behind(9)[0] == b""


def test_a_description_is_the_same_whenever_it_was_sent() -> None:
    sent = relation(1)
    again = sent[:1] + b"\x07" * 24 + sent[25:]
    assert is_same((sent,), (again,))
    assert not is_same(None, (sent,))
    assert not is_same((sent,), (relation(1, name="u"),))


def test_keepalives_name_no_later_lsn_than_one() -> None:
    keepalives = [keepalive(90), keepalive(5000), keepalive(6000, reply=True)]
    data, lengths = pgoutput.gulp([begin(110), keepalives[0], commit(110, 115), *keepalives[1:]])
    limited = heard_at_most(data, lengths, 115)
    messages = StreamMessages(limited, lengths)
    assert [messages.keepalive_lsn(one) for one in messages.keepalives.tolist()] == [90, 115, 115]
    assert (len(limited), messages.wants_reply()) == (len(data), True)
    assert heard_at_most(limited, lengths, 115) == limited
