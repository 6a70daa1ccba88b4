"""`reticent agg backup`: a copy is made while the server collects, and a server on the copy is safe without more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent.console.program import main
from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from reticent_agg import AggregationServer, SqlStore
from tests.parties import aggregation
from tests.parties.aggregation import KeyServer, Phone, Time

IDENTITY = f"{KeyServer.identity.public.hex()}\n"
PHONES = 60


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: Time) -> Iterator[AggregationServer]:
    """A server on the default folder."""
    monkeypatch.chdir(tmp_path)
    Path("aggregation").mkdir()
    Path("aggregation/identity.pub").write_text(IDENTITY)
    server = aggregation.opened(Path("aggregation/aggregation.db"), time)
    yield server
    server.close()


def test_a_restored_copy_keeps_decisions_and_has_open_queries_burnt(
    served: AggregationServer, time: Time, capsys: pytest.CaptureFixture[str]
) -> None:
    released = aggregation.collecting(served, aggregation.make_query())
    served.collection.contribute([Phone(number).contribution(released) for number in range(3)])
    (head,) = aggregation.closed(served, time, released)
    decision = KeyServer().decision(head)
    served.closing.decide(decision)
    is_open = aggregation.collecting(served, aggregation.make_query())
    waiting = aggregation.make_query()
    aggregation.announce(served, waiting)
    served.collection.contribute([Phone(number).contribution(is_open) for number in range(2)])
    assert main(["agg", "backup", "copy"]) == 0
    assert capsys.readouterr().out == "copied to copy\n"
    assert sorted(path.name for path in Path("copy").iterdir()) == ["aggregation.db", "identity.pub"]
    assert Path("copy/identity.pub").read_text() == IDENTITY
    served.collection.contribute([Phone(2).contribution(is_open)])  # the copy lacks this one

    copy = aggregation.opened(Path("copy/aggregation.db"), time)
    assert copy.store.decision_for_phones(released.digest, 0) == decision
    (burnt,) = [each for each in aggregation.requests(copy) if each.query == is_open.digest]
    assert not burnt.ciphertexts
    copy.closing.decide(KeyServer().decision(burnt))
    assert copy.store.decision_for_phones(is_open.digest, 0) is None  # the original may have sent the sum
    (late,) = copy.collection.contribute([Phone(3).contribution(is_open)])
    assert isinstance(late, Refused)
    assert late.refusal is Refusal.LATE
    assert not aggregation.uncountersigned(copy)
    for again in (waiting, aggregation.make_query(id=waiting.id, epsilon=0.5)):
        with pytest.raises(Refused) as refused:  # phones may repeat their contributions to the same bytes
            aggregation.announce(copy, again)
        assert refused.value.refusal is Refusal.CONFLICT
        assert not aggregation.uncountersigned(copy)
    copy.close()

    (sent,) = [each for each in aggregation.closed(served, time, is_open) if each.query == is_open.digest]
    assert aggregation.phones_in(sent) == {0, 1, 2}  # the original goes on


def test_a_copy_that_is_made_while_phones_contribute_is_of_one_moment(served: AggregationServer) -> None:
    query = aggregation.collecting(served, aggregation.make_query(population=PHONES))
    begun, copied = threading.Event(), threading.Event()
    served.collection.contribute([Phone(0).contribution(query)])

    def contribute() -> None:
        for number in range(1, PHONES):
            served.collection.contribute([Phone(number).contribution(query)])
            begun.set()
        copied.wait()

    phones = threading.Thread(target=contribute)
    phones.start()
    begun.wait()
    codes = [main(["agg", "backup", f"copy {number}"]) for number in range(5)]
    copied.set()
    phones.join()
    assert codes == [0] * 5
    numbers = []
    for number in range(5):
        store = SqlStore(Path(f"copy {number}/aggregation.db"))
        (cohort,) = store.cohorts(query.digest)
        assert len(store.receipts(query.digest, 0, b"", PHONES)) == cohort.contributors
        numbers.append(cohort.contributors)
        store.close()
    assert numbers == sorted(numbers)
    assert numbers[0] > 1
    assert served.store.cohorts(query.digest)[0].contributors == PHONES


def test_a_backup_overwrites_nothing_and_is_there_whole_or_not_at_all(
    served: AggregationServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = aggregation.make_query()
    assert aggregation.announce(served, query).phase == wire.ANNOUNCED
    assert main(["agg", "backup", "copy"]) == 0
    assert main(["agg", "backup", "copy"]) != 0
    assert "it exists: name a new folder" in capsys.readouterr().err
    assert main(["agg", "backup", "missing/copy"]) != 0
    assert main(["agg", "backup", "other", "--folder", "nowhere"]) != 0
    assert "there is no aggregation server in nowhere" in capsys.readouterr().err

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SqlStore, "abort_restored", broken)
    assert main(["agg", "backup", "other"]) != 0
    assert "No space left" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["aggregation", "copy"]
    for path in (tmp_path / "copy", tmp_path / "copy" / "aggregation.db"):
        assert path.stat().st_mode & 0o077 == 0, path
