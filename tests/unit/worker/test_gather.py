from __future__ import annotations

from kuvasz.model import Delivery, Relation, Replay, Segment, TableName, Truncation
from kuvasz.worker.gather import Gatherer, ToPark
from tests.support.changes import Sender, insert, relation

OTHER = TableName(schema="public", name="others")


def targets_of(source: str, found: Relation) -> list[tuple[str, str]]:
    target = {"items": "shop.items", "others": "shop.others"}.get(found.table.name)
    return [] if target is None else [(target, source)]


def always(target: str, source: str, epoch: int) -> bool:
    return True


def delivery(
    *changes: Segment | Truncation, through: int, epoch: int = 1, is_open: bool = False, source: str = "eu"
) -> Delivery:
    return Delivery(source=source, changes=changes, through=through, bytes=10, epoch=epoch, is_open=is_open)


class Streams:
    def __init__(self, name: str = "eu") -> None:
        self.items = Sender(name)
        self.others = Sender(name, relation(table=OTHER, oid=2))


def test_sorts_changes_by_target_and_keeps_their_order() -> None:
    eu, us = Streams(), Streams("us")
    one, two, three, four = eu.items.one(insert(1)), eu.others.one(insert(1)), eu.items.one(insert(2)), us.items.one()
    gathered = Gatherer().gather(
        [delivery(one, two, through=5), delivery(four, through=9, source="us"), delivery(three, through=7)],
        targets_of,
        always,
    )
    items, others = gathered.works
    assert items.changes == (one, four, three)
    assert (items.through, others.through) == ({"eu": 7, "us": 9}, {"eu": 5})
    assert others.changes == (two,)
    assert gathered.through == {"eu": (7, 1), "us": (9, 1)}
    assert gathered.bytes == 30


def test_each_route_of_a_table_has_all_of_its_changes_and_a_place_of_its_own() -> None:
    eu = Streams()
    change, later = eu.items.one(insert(1)), eu.items.one(insert(2))

    def routes(source: str, _: Relation) -> list[tuple[str, str]]:
        return [("shop.items_a", source), ("shop.items_b", source)]

    def parks(target: str, *_: object) -> bool:
        return target == "shop.items_b"

    gatherer = Gatherer(parks)
    first, second = gatherer.gather([delivery(change, through=5)], routes, always).works
    assert (first.target, first.changes, first.through) == ("shop.items_a", (change,), {"eu": 5})
    assert (second.target, second.changes, second.through) == ("shop.items_b", (change,), {"eu": 5})
    gathered = gatherer.gather([delivery(later, through=9)], routes, lambda target, *_: target == "shop.items_a")
    assert [(work.target, work.changes) for work in gathered.works] == [("shop.items_a", (later,))]
    assert [(part.target, part.changes) for part in gathered.to_park] == [("shop.items_b", (later,))]
    assert gathered.through == {"eu": (9, 1)}


def test_a_relation_without_an_active_target_is_left_out_but_counts_as_durable() -> None:
    eu = Streams()
    gathered = Gatherer().gather([delivery(eu.items.one(insert(1)), through=5)], lambda *_: (), always)
    assert (gathered.works, gathered.through) == ((), {"eu": (5, 1)})


def test_whether_a_target_follows_is_asked_once_and_with_the_deliverys_epoch() -> None:
    # Paused between two changes, its position would pass the second, which was left out.
    eu = Streams()
    asked: list[tuple[str, str, int]] = []

    def once(*key: object) -> bool:
        asked.append(key)
        return len(asked) == 1

    deliveries = [delivery(eu.items.one(insert(n)), eu.items.one(insert(n + 1)), through=n, epoch=7) for n in (1, 3)]
    (work,) = Gatherer().gather(deliveries, targets_of, once).works
    assert asked == [("shop.items", "eu", 7)]
    assert (len(work.changes), work.through) == (4, {"eu": 3})


def test_a_target_that_stops_following_within_a_transaction_abandons_its_parts() -> None:
    eu, gatherer = Streams(), Gatherer()
    lsn = eu.items.commit_lsn()
    gatherer.gather([delivery(eu.items.part(lsn, insert(1)), through=5, is_open=True)], targets_of, always)
    last = delivery(eu.items.segment([(lsn, [insert(2)])]), through=lsn + 8)
    (work,) = gatherer.gather([last], targets_of, lambda *_: False).works
    assert (work.target, work.changes, work.through) == ("shop.items", (), {})
    assert (work.abandoned, work.open_sources) == ({"eu"}, frozenset())
    assert gatherer.gather([delivery(through=lsn + 9)], targets_of, always).works == ()


def test_open_parts_are_remembered_over_mini_transactions() -> None:
    eu, gatherer = Streams(), Gatherer()
    lsn = eu.items.commit_lsn()
    (first,) = gatherer.gather(
        [delivery(eu.items.part(lsn, insert(1)), through=5, is_open=True)], targets_of, always
    ).works
    assert (first.open_sources, first.through) == ({"eu"}, {"eu": 5})
    (other,) = gatherer.gather(
        [delivery(eu.others.part(lsn, insert(1)), through=5, is_open=True)], targets_of, always
    ).works
    assert (other.target, other.open_sources) == ("shop.others", {"eu"})
    # The last part has rows for neither: both are told that the transaction is whole.
    works = gatherer.gather([delivery(through=9)], targets_of, always).works
    assert [(work.target, work.changes, work.through, work.open_sources) for work in works] == [
        ("shop.items", (), {"eu": 9}, frozenset()),
        ("shop.others", (), {"eu": 9}, frozenset()),
    ]
    assert gatherer.gather([delivery(through=10)], targets_of, always).works == ()


def test_a_new_connection_abandons_parts_of_earlier_mini_transactions() -> None:
    eu, gatherer = Streams(), Gatherer()
    part = eu.items.part(eu.items.commit_lsn(), insert(1))
    gatherer.gather([delivery(part, through=5, is_open=True)], targets_of, always)
    (work,) = gatherer.gather([delivery(through=4, epoch=2)], targets_of, always).works
    assert (work.target, work.changes, work.through) == ("shop.items", (), {})
    assert (work.abandoned, work.open_sources) == ({"eu"}, frozenset())
    assert gatherer.gather([delivery(through=5, epoch=2)], targets_of, always).works == ()


def test_a_new_connection_forgets_what_this_mini_transaction_took_of_the_last_one() -> None:
    # Whole transactions next to an open part come again, too, and must not be applied twice in one go.
    eu, us, gatherer = Streams(), Streams("us"), Gatherer()
    whole, lsn, kept = eu.items.one(insert(1)), eu.items.commit_lsn(), us.items.one(insert(7))
    last = eu.items.segment([(1100, [insert(1)])])
    gathered = gatherer.gather(
        [
            delivery(whole, eu.items.part(lsn, insert(2)), through=1108, is_open=True),
            delivery(kept, through=50, source="us"),
            delivery(last, through=1108, epoch=2),
        ],
        targets_of,
        always,
    )
    (work,) = gathered.works
    assert work.changes == (kept, last)
    assert work.through == {"us": 50, "eu": 1108}
    assert (work.abandoned, work.open_sources) == (frozenset(), frozenset())
    assert gathered.through["eu"] == (1108, 2)


def test_the_end_of_a_transaction_that_is_forgotten_abandons_its_earlier_parts() -> None:
    eu, gatherer = Streams(), Gatherer()
    lsn = eu.items.commit_lsn()
    gatherer.gather([delivery(eu.items.part(lsn, insert(1)), through=5, is_open=True)], targets_of, always)
    again = delivery(eu.items.part(lsn, insert(1)), through=5, epoch=2, is_open=True)
    (work,) = gatherer.gather([delivery(through=lsn + 8), again], targets_of, always).works
    assert work.changes == again.changes
    assert (work.abandoned, work.open_sources, work.through) == ({"eu"}, {"eu"}, {"eu": 5})


def test_a_truncate_in_an_open_part_is_forgotten_with_it() -> None:
    eu, gatherer = Streams(), Gatherer()
    truncation = eu.items.truncation(is_open=True)
    deliveries = [delivery(truncation, through=5, is_open=True), delivery(through=5, epoch=2)]
    (work,) = gatherer.gather(deliveries, targets_of, always).works
    assert (work.changes, work.abandoned) == ((), frozenset())


def test_a_source_that_reconnects_leaves_others_alone() -> None:
    eu, us, gatherer = Streams(), Streams("us"), Gatherer()
    lsn = us.items.commit_lsn()
    gatherer.gather(
        [delivery(us.items.part(lsn, insert(1)), through=5, source="us", is_open=True)], targets_of, always
    )
    (work,) = gatherer.gather(
        [delivery(eu.items.one(insert(1)), through=3), delivery(eu.items.one(insert(1)), through=3, epoch=2)],
        targets_of,
        always,
    ).works
    assert (work.abandoned, work.open_sources) == (frozenset(), {"us"})


def parked(*targets: str, since: int = 0):
    return lambda target, source, epoch: target in targets and epoch >= since


def replay(
    *changes: Segment | Truncation, through: int, number: int = 1, end: int = 0, is_open: bool = False
) -> Delivery:
    at = Replay(target="shop.items", number=number, end=end)
    return Delivery(source="eu", changes=changes, through=through, bytes=10, is_open=is_open, replay=at)


def only_others(target: str, source: str, epoch: int) -> bool:
    return target == "shop.others"


def test_what_does_not_follow_is_parked_with_what_came_for_it_alone() -> None:
    eu, gatherer = Streams(), Gatherer(parked("shop.items", "shop.others", since=2))
    early, item, other = eu.items.one(insert(1)), eu.items.one(insert(2)), eu.others.one(insert(1))
    gathered = gatherer.gather(
        [delivery(early, through=4), delivery(item, other, through=5, epoch=2)], targets_of, only_others
    )
    assert gathered.to_park == (
        ToPark(target="shop.items", source="eu", epoch=2, changes=(item,), through=5, is_open=False),
    )
    (work,) = gathered.works
    assert (work.target, work.changes) == ("shop.others", (other,))
    assert gathered.through == {"eu": (5, 2)}


def test_the_mere_end_of_a_parked_transaction_is_parked() -> None:
    eu, gatherer = Streams(), Gatherer(parked("shop.items"))
    lsn = eu.items.commit_lsn()
    gatherer.gather([delivery(eu.items.part(lsn, insert(1)), through=5, is_open=True)], targets_of, only_others)
    (end,) = gatherer.gather([delivery(through=lsn + 8)], targets_of, only_others).to_park
    assert (end.target, end.changes, end.is_open) == ("shop.items", (), False)
    assert gatherer.gather([delivery(through=lsn + 9)], targets_of, only_others).to_park == ()
    # A new connection begins it again: there is nothing to be ended.
    gatherer.gather([delivery(eu.items.part(lsn, insert(1)), through=5, is_open=True)], targets_of, only_others)
    assert gatherer.gather([delivery(through=lsn + 8, epoch=2)], targets_of, only_others).to_park == ()


def test_a_replay_goes_ahead_of_the_connection_behind_it() -> None:
    eu = Streams()
    gatherer = Gatherer(is_replaying=lambda target, source, number: number == 2)
    gatherer.gather([delivery(through=1)], targets_of, always)
    stale, old, live, other = eu.items.one(), eu.items.one(insert(1)), eu.items.one(insert(2)), eu.others.one()
    gathered = gatherer.gather(
        [
            replay(stale, through=1, number=1),
            delivery(other, through=2),
            replay(old, through=3, number=2, end=70),
            delivery(live, through=9, epoch=2),
        ],
        targets_of,
        lambda target, source, epoch: target == "shop.others" or epoch == 2,
    )
    (items, others) = gathered.works
    assert (items.changes, items.through) == ((old, live), {"eu": 9})
    assert (others.changes, others.through) == ((), {}), "comes again with the new connection"
    assert gathered.replays == (("eu", Replay(target="shop.items", number=2, end=70)),)
    assert gathered.through == {"eu": (9, 2)}
    assert gathered.bytes == 40


def test_what_a_replay_brought_is_not_taken_again_from_the_connection_behind_it() -> None:
    """The reader goes back to what is confirmed, which is often before the end of the log."""
    eu, gatherer = Streams(), Gatherer(is_replaying=lambda *_: True)
    old, cut = eu.items.segment([(1100, [insert(1)])]), eu.items.truncation(1200)
    live = eu.items.segment([(1100, [insert(1)]), (1300, [insert(2), insert(3)])])
    other = eu.others.segment([(1100, [insert(1)])])
    (items, others) = gatherer.gather(
        [
            replay(old, cut, through=1208),
            delivery(eu.items.segment([(1100, [insert(1)])]), through=1108, epoch=2),
            delivery(live, cut, other, through=1308, epoch=2),
        ],
        targets_of,
        always,
    ).works
    taken, truncated, late = items.changes
    assert (taken, truncated) == (old, cut)
    assert late.transactions.commit_lsn.tolist() == [1300]
    assert late.transactions.row_end.tolist() == [2]
    assert (items.through, others.changes) == ({"eu": 1308}, (other,))


def test_a_connection_that_is_still_behind_the_log_does_not_take_the_position_back() -> None:
    eu, gatherer = Streams(), Gatherer(is_replaying=lambda *_: True)
    old, live = eu.items.segment([(1100, [insert(1)])]), eu.items.segment([(1000, [insert(0)])])
    (work,) = gatherer.gather(
        [replay(old, through=1108), delivery(live, through=1008, epoch=2)], targets_of, always
    ).works
    assert (work.changes, work.through) == ((old,), {"eu": 1108})


def test_a_replayed_transaction_in_parts_is_open_until_its_end_or_abandoned_with_its_replay() -> None:
    eu, current = Streams(), [1]
    gatherer = Gatherer(is_replaying=lambda target, source, number: number == current[0])
    lsn = eu.items.commit_lsn()
    part = eu.items.part(lsn, insert(1))
    first = gatherer.gather([replay(part, through=5, end=10, is_open=True)], targets_of, always)
    assert (first.works[0].open_sources, first.replays) == ({"eu"}, ())
    last = gatherer.gather([replay(through=lsn + 8, end=20)], targets_of, always)
    assert (last.works[0].open_sources, len(last.replays)) == (frozenset(), 1)
    gatherer.gather([replay(part, through=5, end=10, is_open=True)], targets_of, always)
    current[0] = 2
    (work,) = gatherer.gather(
        [replay(part, through=5, number=2, end=10, is_open=True)], targets_of, always
    ).works  # fmt: skip
    assert (work.abandoned, work.open_sources, work.changes) == ({"eu"}, {"eu"}, (part,))


def test_a_replayed_transaction_goes_on_though_the_connection_behind_it_ends() -> None:
    """What the lake has of it came from the log; of the connection's own it has nothing yet."""
    eu, gatherer = Streams(), Gatherer(is_replaying=lambda *_: True)
    lsn = eu.items.commit_lsn()
    begin, end = eu.items.part(lsn, insert(1)), eu.items.part(lsn, insert(2))
    late = eu.items.part(lsn + 100, insert(3))
    gatherer.gather([replay(begin, through=5, end=10, is_open=True)], targets_of, always)
    (work,) = gatherer.gather(
        [
            replay(end, through=lsn + 8, end=20),
            delivery(late, through=lsn + 8, epoch=2, is_open=True),
            delivery(through=5, epoch=3),
        ],
        targets_of,
        always,
    ).works
    assert (work.changes, work.abandoned, work.open_sources) == ((end,), frozenset(), frozenset())


def test_a_transaction_that_ends_as_another_begins_has_ended() -> None:
    """One gulp may bring the end of the one and too much of the other: both are one delivery."""
    eu, gatherer = Streams(), Gatherer()
    first, second = eu.items.part(1100, insert(1)), eu.others.part(1300, insert(2))
    gatherer.gather([delivery(first, through=5, is_open=True)], targets_of, always)
    items, others = gatherer.gather([delivery(second, through=1108, is_open=True)], targets_of, always).works
    assert (items.target, items.through, items.open_sources) == ("shop.items", {"eu": 1108}, frozenset())
    assert (others.through, others.open_sources) == ({"eu": 1108}, {"eu"})
    (work,) = gatherer.gather([delivery(through=1108, epoch=2)], targets_of, always).works
    assert (work.target, work.abandoned) == ("shop.others", {"eu"})


def test_whole_transactions_beside_an_open_one_are_not_open() -> None:
    eu = Streams()
    whole, part = eu.items.segment([(1100, [insert(1)])]), eu.others.part(1300, insert(2))
    items, others = Gatherer().gather([delivery(whole, part, through=1108, is_open=True)], targets_of, always).works
    assert (items.open_sources, others.open_sources) == (frozenset(), {"eu"})


def test_a_parked_transaction_that_ends_as_another_begins_has_ended() -> None:
    eu, gatherer = Streams(), Gatherer(parked("shop.items"))
    first, second = eu.items.part(1100, insert(1)), eu.others.part(1300, insert(2))
    gatherer.gather([delivery(first, through=5, is_open=True)], targets_of, only_others)
    (part,) = gatherer.gather([delivery(second, through=1108, is_open=True)], targets_of, only_others).to_park
    assert (part.target, part.changes, part.through) == ("shop.items", (), 1108)


def test_a_live_part_that_the_log_brought_does_not_keep_its_transaction_open() -> None:
    eu, gatherer = Streams(), Gatherer(is_replaying=lambda *_: True)
    part = eu.items.part(1100, insert(1))
    gatherer.gather([replay(part, through=5, end=10, is_open=True)], targets_of, always)
    (work,) = gatherer.gather(
        [replay(through=1108, end=20), delivery(part, through=5, epoch=2, is_open=True)], targets_of, always
    ).works
    assert (work.changes, work.through, work.open_sources) == ((), {"eu": 1108}, frozenset())
    assert gatherer.gather([delivery(through=5, epoch=3)], targets_of, always).works == ()


def test_a_table_that_stopped_gives_its_part_up_before_a_log_is_replayed() -> None:
    """Whether or not anything of its source has come since."""
    eu, gatherer = Streams(), Gatherer(is_replaying=lambda *_: True)
    gatherer.gather([delivery(eu.items.part(1300, insert(9)), through=5, epoch=5, is_open=True)], targets_of, always)
    begin, end = eu.items.part(1200, insert(1)), eu.items.segment([(1200, [insert(2)])])
    (work,) = gatherer.gather([replay(begin, through=5, end=10, is_open=True)], targets_of, only_others).works
    assert (work.abandoned, work.changes, work.open_sources) == ({"eu"}, (begin,), {"eu"})
    live = delivery(eu.items.part(1300, insert(9)), through=5, epoch=6, is_open=True)
    assert gatherer.gather([live], targets_of, only_others).works == ()
    (work,) = gatherer.gather([replay(end, through=1208, end=20)], targets_of, only_others).works
    assert (work.abandoned, work.changes, work.open_sources) == (frozenset(), (end,), frozenset())


def test_members_of_a_target_are_sources_of_their_own() -> None:
    def member(source: str, found: Relation) -> list[tuple[str, str]]:
        return [("shop.all", f"{source}/{found.oid}")]

    eu = Streams()
    gatherer = Gatherer()
    one, two = f"eu/{eu.items.relation.oid}", "eu/2"
    lsn = eu.items.commit_lsn()
    parts = eu.items.part(lsn, insert(1)), eu.others.part(lsn, insert(1))
    (work,) = gatherer.gather([delivery(*parts, through=5, is_open=True)], member, always).works
    assert [change.source for change in work.changes] == [one, two]
    assert (work.through, work.open_sources) == ({one: 5, two: 5}, {one, two})
    # One of them stops following; the other's transaction ends.
    (work,) = gatherer.gather([delivery(through=lsn + 8)], member, lambda _, name, __: name == two).works
    assert (work.through, work.open_sources, work.abandoned) == ({two: lsn + 8}, frozenset(), {one})
    gatherer.gather([delivery(parts[1], through=lsn + 8, is_open=True)], member, always)
    (work,) = gatherer.gather([delivery(through=lsn, epoch=2)], member, always).works
    assert (work.through, work.abandoned) == ({}, {two})


def test_parts_of_a_transaction_are_left_until_the_next_mini_transaction_gives_them_up() -> None:
    eu, replayed = Streams(), {1}
    gatherer = Gatherer(is_replaying=lambda target, source, number: number in replayed)
    lsn = eu.items.commit_lsn()
    part = eu.items.part(lsn, insert(1))
    gatherer.gather(
        [
            delivery(part, through=1000, is_open=True),
            replay(eu.others.part(lsn, insert(1)), through=1000, number=1, is_open=True),
        ],
        targets_of,
        always,
    )

    def never(*_: object) -> bool:
        return False

    assert not gatherer.has_parts("shop.items", always), "they go on"
    assert gatherer.has_parts("shop.items", never)
    assert not gatherer.has_parts("shop.others", never)
    replayed.clear()
    assert gatherer.has_parts("shop.items", always), "of what was parked"
    (work,) = gatherer.gather([], targets_of, never).works
    assert (work.target, work.abandoned) == ("shop.items", {"eu"})
    assert not gatherer.has_parts("shop.items", never)


def test_of_a_table_that_goes_up_to_an_lsn_no_later_transaction_is_taken() -> None:
    eu = Streams()
    lsn = eu.items.commit_lsn()
    early, late = eu.items.one(insert(1)), eu.items.one(insert(2))
    end = int(late.transactions.commit_lsn[0])
    assert lsn < end
    gatherer = Gatherer(end=lambda _, __, epoch: end if epoch == 1 else None)
    both = gatherer.gather([delivery(early, late, through=end + 100)], targets_of, always)
    (work,) = both.works
    assert (work.changes, work.through) == ((early,), {"eu": end})
    assert both.through == {"eu": (end + 100, 1)}, "of all others it is durable"
    assert gatherer.gather([delivery(late, through=end + 100)], targets_of, always).works == ()
    (work,) = gatherer.gather([delivery(early, late, through=end + 100, epoch=2)], targets_of, always).works
    assert (work.changes, work.through) == ((early, late), {"eu": end + 100})
