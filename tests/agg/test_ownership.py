"""Whose queries are whose: an analyst sees and aborts only their own, the operator all of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from reticent.console.program import main
from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from reticent_agg import AggregationServer
from tests.agg.network import Deciding, network, refusal_of, run
from tests.parties import aggregation
from tests.parties.aggregation import KeyServer, Time

ANN, BOB = "analyst ann", "analyst bob"


def test_another_analysts_query_is_not_shown_and_not_aborted(server: AggregationServer) -> None:
    query = aggregation.make_query()
    aggregation.announce(server, query, ANN)
    server.queries.countersign(query, KeyServer().deals(query))
    for analyst in (BOB, None):
        with pytest.raises(Refused, match="another analyst's query") as caught:
            server.replies.status(wire.StatusRequest(id=query.id), analyst)
        assert caught.value.refusal is Refusal.NOT_PERMITTED
        with pytest.raises(Refused, match="another analyst's query"):
            aggregation.abort(server, query.id, analyst)
        assert not server.replies.list_queries(analyst).queries
    assert [each.phase for each in server.replies.list_queries(ANN).queries] == [wire.COLLECTING]
    assert aggregation.abort(server, query.id, ANN).phase == wire.CLOSING


def test_another_analyst_cannot_announce_the_same_query_nor_take_the_name_of_a_refused_one(
    server: AggregationServer,
) -> None:
    query, unwanted = aggregation.make_query(), aggregation.make_query()
    for each in (query, unwanted):
        aggregation.announce(server, each, ANN)
    server.store.reject(unwanted.digest, Refused(Refusal.BAD_QUERY, "too dear"))
    for each in (query, unwanted, dataclasses.replace(unwanted, epsilon=0.5)):
        with pytest.raises(Refused) as caught:
            aggregation.announce(server, each, BOB)
        assert caught.value.refusal is Refusal.CONFLICT
    corrected = dataclasses.replace(unwanted, epsilon=0.5)
    assert aggregation.announce(server, corrected, ANN).phase == wire.ANNOUNCED


@pytest.mark.slow
def test_the_owner_is_whoever_the_certificate_names(tmp_path: Path, certs: Path) -> None:
    async def live() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener, network(tmp_path, certs, listener.address) as net:
            query = aggregation.make_query()
            ann, bob = await net.analyst("ann"), await net.analyst("bob")
            await ann.Announce(wire.AnnounceRequest(query=query.to_bytes()))
            for call in (bob.Status(wire.StatusRequest(id=query.id)), bob.Abort(wire.AbortRequest(id=query.id))):
                assert (await refusal_of(call)).refusal is Refusal.NOT_PERMITTED
            assert not (await bob.List(wire.ListRequest())).queries
            [shown] = (await ann.List(wire.ListRequest())).queries
            assert shown.phase == wire.COLLECTING

    run(live())


def test_the_operator_aborts_any_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aggregation").mkdir()
    (tmp_path / "aggregation" / "identity.pub").write_text(KeyServer.identity.public.hex())
    server = aggregation.opened(tmp_path / "aggregation" / "aggregation.db", Time())
    query = aggregation.make_query()
    aggregation.announce(server, query, ANN)
    server.queries.countersign(query, KeyServer().deals(query))
    assert main(["agg", "abort", query.id]) == 0
    assert capsys.readouterr().out == f"{query.id}  closing\n"
    assert [(each.ciphertexts, each.contributors) for each in aggregation.requests(server)] == [
        (b"", 0)
    ]  # beside a server
    server.close()
    assert main(["agg", "abort", "nothing"]) == 3
    assert "UNKNOWN_QUERY" in capsys.readouterr().err
