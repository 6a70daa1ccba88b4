"""Two processes that change one journal at the same time."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Barrier
from pathlib import Path

from reticent.privacy import Query
from reticent.protocol import Refused
from reticent_keys.journal import CountersignedQuery, Deal, EnrolledPhone, Key, KeyState, RecordedDecision
from tests.keys.journal_setting import (
    ASKED,
    DEADLINE,
    LATER,
    NOW,
    Setting,
    Storage,
    countersigned,
    decision,
    halves,
    phone,
)

OVERTAKES = 0.3
"""Seconds after which another process has changed something, if it can."""
ROUNDS = 20
"""How often two processes race."""


def check_a_change_builds_on_the_one_before(the: Setting) -> None:
    """Also if another process begins to change the same phone in the meantime."""
    begun = threading.Event()

    def longer(found: EnrolledPhone) -> EnrolledPhone:
        begun.set()
        return found._replace(expires=found.expires + 1)

    with closing(the.storage.open(the.path)) as other, ThreadPoolExecutor(1) as pool:
        futures: list[Future[EnrolledPhone]] = []

        def interrupted(found: EnrolledPhone) -> EnrolledPhone:
            futures.append(pool.submit(other.change_phone, found.id, longer))
            begun.wait(OVERTAKES)
            return found._replace(expires=found.expires + 1)

        the.journal.change_phone(phone(1).id, interrupted)
        futures[0].result(60)
    assert the.journal.phone(phone(1).id).expires == LATER + 2, "a change was lost"


def check_a_query_is_dealt_by_one_of_two(the: Setting) -> None:
    """Also if another process begins to countersign it in the meantime."""
    begun = threading.Event()

    def never(members: Sequence[int]) -> Deal:
        begun.set()
        return Deal(b"other", halves(members).cohorts)

    with closing(the.storage.open(the.path)) as other, ThreadPoolExecutor(1) as pool:
        futures: list[Future[CountersignedQuery]] = []

        def interrupted(members: Sequence[int]) -> Deal:
            futures.append(pool.submit(other.countersign, ASKED, never, NOW, DEADLINE))
            begun.wait(OVERTAKES)
            return halves(members)

        made = the.journal.countersign(ASKED, interrupted, NOW, DEADLINE)
        assert futures[0].result(60) == made
    assert not begun.is_set(), "a query was dealt twice"


def check_no_key_of_a_query_is_erased_while_it_is_countersigned(the: Setting) -> None:
    """Its key is on disk before the query is recorded."""
    begun, listed = threading.Event(), list[list[bytes]]()

    def listing(kept: list[bytes]) -> None:
        listed.append(kept)
        begun.set()

    with closing(the.storage.open(the.path)) as other, ThreadPoolExecutor(1) as pool:
        futures: list[Future[None]] = []

        def interrupted(members: Sequence[int]) -> Deal:
            futures.append(pool.submit(other.erase_all_but_undecided, listing, NOW))
            begun.wait(OVERTAKES)
            return halves(members)

        the.journal.countersign(ASKED, interrupted, NOW, DEADLINE)
        futures[0].result(60)
    assert listed == [[ASKED.digest]]


def check_two_processes_agree(the: Setting) -> None:
    """On every invitation, query and decision; and each change builds on the one before."""
    queries = [replace(ASKED, id=f"race {each}") for each in range(ROUNDS)]
    raced = [countersigned(the.journal, id=f"decided {each}").number for each in range(ROUNDS)]
    the.journal.add_invitations([b"race %d" % each for each in range(ROUNDS)], LATER)
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.SimpleQueue()
    arguments = (the.storage, the.path, barrier, results, queries, raced)
    with ExitStack() as stack:
        for name in (b"one", b"two"):
            process = context.Process(target=race, args=(name, *arguments))
            process.start()
            stack.callback(process.join, 60)
        outcomes = dict(results.get() for _ in range(2))
    one, two = outcomes[b"one"], outcomes[b"two"]
    assert one.deals == two.deals, "a query was dealt twice"
    assert one.decisions == two.decisions, "a cohort was decided twice"
    for each in range(ROUNDS):
        assert one.enrolled[each] + two.enrolled[each] == 1, "an invitation enrolled two phones, or none"
        assert one.noted[each] + two.noted[each] == 1, "two requests were noted, or none"
    assert the.reopened().phone(phone(1).id).expires == LATER + 2 * ROUNDS, "a change was lost"
    assert len(the.journal.keys(KeyState.ACTIVE)) == 1
    assert Counter(key.state for key in the.journal.summary(NOW).keys)["ACTIVE"] == 1


@dataclass
class Outcomes:
    """The results of a process in each round."""

    deals: list[bytes]
    decisions: list[RecordedDecision]
    enrolled: list[bool]
    noted: list[bool]


def race(  # noqa: PLR0917  # what a process is started with
    name: bytes,
    storage: Storage,
    path: Path,
    barrier: Barrier,
    results: multiprocessing.SimpleQueue[tuple[bytes, Outcomes]],
    queries: list[Query],
    raced: list[int],
) -> None:
    """Run by each of two processes."""
    mine = Outcomes([], [], [], [])

    def slow(members: Sequence[int]) -> Deal:
        time.sleep(0.001)
        return Deal(name + b" %d" % len(mine.deals), halves(members).cohorts)

    def longer(found: EnrolledPhone) -> EnrolledPhone:
        time.sleep(0.001)
        return found._replace(expires=found.expires + 1)

    def works(call: Callable[[], object]) -> bool:
        try:
            call()
        except Refused:
            return False
        return True

    with closing(storage.open(path)) as journal:
        for each, query in enumerate(queries):
            barrier.wait(60)
            candidate = EnrolledPhone(name + bytes([each]) * 13, name, NOW, LATER)
            token = b"race %d" % each
            mine.enrolled.append(works(lambda token=token, candidate=candidate: journal.enrol(token, candidate)))  # type: ignore[misc]
            mine.deals.append(journal.countersign(query, slow, NOW, DEADLINE).agreement_key)
            mine.noted.append(works(lambda each=each: journal.note_decryption(raced[each], 0, name)))  # type: ignore[misc]
            mine.decisions.append(journal.decide(raced[each], 1, decision(name), NOW))
            journal.change_phone(phone(1).id, longer)
        barrier.wait(60)
        journal.activate(Key(name.decode(), 2048, name), LATER)
    results.put((name, mine))
