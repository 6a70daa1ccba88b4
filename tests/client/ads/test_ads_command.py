"""`reticent phone ads`: a user reads why an ad was shown or not, and tries a query without using anything up."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from reticent.clock import SystemClock
from reticent.console import program
from reticent_client import Broker, Phone, PhoneStore, connect
from reticent_client.ads.log import PrivateLog
from reticent_client.errors import AppRefused
from tests.client.ads.world import LATTE, StubService, ad_phone, in_thread, number, settings_for, wire_ad
from tests.client.apps.phones import limited

SENSITIVE = tuple(("40.73,-74.03", interest, query) for interest in ("jazz", "wine") for query in ("latte", "ramen"))


def settings_file(folder: Path, address: str) -> Path:
    """The same settings as those of the phone, with a delta."""
    settings_for(folder, address)
    path = folder / "ads.toml"
    path.write_text(
        f'hierarchy = "hierarchy.json"\nservice = "{address}"\napps = ["weather"]\ninterest = "jazz"\n'
        f"delta = 0.5\nsensitive = {json.dumps(SENSITIVE)}\ndisliked_ads = ['boots']\nmax_per_day = 3\n"
        '[places]\nhome = "40.71,-74.01"\n'
    )
    return path


@limited
async def lived(folder: Path) -> None:
    """A phone that shows an ad, and another one that is suppressed."""
    node = number(LATTE, 0)
    service = StubService([wire_ad("shoes", {node: 0.2}, cap=1), wire_ad("boots", {}, cap=2)])
    store = PhoneStore(folder / "phone.db")
    changed = {"delta": 0.5, "sensitive": SENSITIVE, "disliked_ads": ("boots",)}
    async with ad_phone(folder, service, store=store, changed=changed) as home:
        await home.live("home")
        shown = await home.show("latte")
        assert shown is not None
        await asyncio.to_thread(home.phone.clicked, "weather", shown.showing)
        assert await home.show("latte") is None
        await home.live("hospital")
        service.open.clear()
        assert await home.show("latte", wait=False) is None
    store.close()


def test_each_request_is_explained_on_the_phone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rules that removed an ad, what was sent, the rate with its interval, the disclosure; also without a reply."""
    lived(tmp_path)
    store = ["--store", str(tmp_path / "phone.db")]

    def said(*arguments: str) -> str:
        assert program.main(["phone", "ads", *arguments, *store]) == 0
        return capsys.readouterr().out

    explained = said("explain")
    late, capped, first = explained.split("\n\n")[:3]
    assert "no ad  sent 4\n" in late
    assert "exact context: not known, no label with a place was released" in late
    assert "no ads to choose from: the ad service has not replied yet" in late
    assert "shoes: removed by the rule 'cap' (it was shown 1 times today, and its cap is 1); rate 0.2" in capped
    assert "shoes (clicked)  sent 0|40.71,-74.01|jazz|latte" in first
    assert "exact context: the one that was sent" in first
    assert "shoes: shown; rate 0.2 (0.1 to 0.4) at 0|40.71,-74.01|jazz|latte, 0.2 expected" in first
    assert "boots: removed by the rule 'disliked ad' (the user dislikes this ad); rate 0.1 (0.05 to 0.2) at" in first
    assert "one request raises the service's belief in 40.73,-74.03, jazz, latte by at most 0." in explained
    assert len(said("log").splitlines()) == 3
    assert "log: 1 ads shown, 1 clicked" in said("status")
    document: dict[str, Any] = json.loads(said("explain", "--json", "--last", "2"))
    assert [each["ad"] for each in document["requests"]] == [None, None]
    assert [each["removed_by"] for each in document["requests"][1]["explanation"]["candidates"]] == [
        {"cap": "it was shown 1 times today, and its cap is 1"},
        {"disliked ad": "the user dislikes this ad"},
    ]
    assert max(document["summary"]["disclosure"].values()) <= 0.5
    assert [each["clicked"] for each in json.loads(said("log", "--json"))] == [False, False, True]
    assert json.loads(said("status", "--json"))["shown"] == 1


def test_a_trial_uses_nothing_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log stays as it is, and so do the caps: however often a user tries, the ad would be shown."""
    with in_thread(StubService([wire_ad("shoes", {number(LATTE, 0): 0.2}, cap=1), wire_ad("boots", {})])) as service:
        settings = settings_file(tmp_path, service.address)
        PhoneStore(tmp_path / "phone.db").close()
        before = (tmp_path / "phone.db").read_bytes()
        command = ["phone", "ads", "try", str(settings), "latte", "--store", str(tmp_path / "phone.db")]
        for _ in range(2):
            assert program.main([*command, "--label", "home", "--json"]) == 0
            found = json.loads(capsys.readouterr().out)
            assert (found["ad"], found["node"]) == ("shoes", "0|40.71,-74.01|jazz|latte")
            assert len(found["summary"]["disclosure"]) == 4
        assert program.main(command) == 0
        out = capsys.readouterr().out
        assert "no ad  sent 4" in out
        assert "shoes: no payment is expected in this context" in out
        assert "one request raises the service's belief in" in out
    assert (tmp_path / "phone.db").read_bytes() == before
    for nothing in ("status", "explain"):
        assert program.main(["phone", "ads", nothing, *command[-2:]]) == 0
        assert {"status": "settings: none yet", "explain": "no app has"}[nothing] in capsys.readouterr().out
    assert program.main(["phone", "ads", "log", "--last", "-1", *command[-2:]]) == 2
    assert "--last" in capsys.readouterr().err
    assert program.main([*command, "--label", "home"]) == 0
    assert "no ads to choose from: the ad service at 127.0.0.1" in capsys.readouterr().out


def test_without_a_store_or_with_bad_settings_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", str(tmp_path / "phone.db")]
    assert program.main(["phone", "ads", "log", *store]) == 2
    assert capsys.readouterr().err == f"reticent: there is no phone store at {tmp_path / 'phone.db'}\n"
    (tmp_path / "ads.toml").write_text("levle = 3")
    for command in (["try", str(tmp_path / "ads.toml")], ["log"]):
        assert program.main(["phone", "ads", *command, "--store", str(tmp_path / "ads.toml")]) == 2
        assert capsys.readouterr().err.startswith(f"reticent: {tmp_path / 'ads.toml'}")
    assert program.main(["phone", "run", "--ads", str(tmp_path / "ads.toml"), *store]) == 2
    assert "settings for ads have the keys" in capsys.readouterr().err


@limited
async def test_an_app_in_python_shows_an_ad_and_reports_a_click(tmp_path: Path) -> None:
    """By the machine's clock: the reply takes the time that the user has set."""
    service = StubService([wire_ad("shoes", {}, cap=1)])
    async with service.running():
        settings = settings_for(tmp_path, service, reply_after=0.2)
        async with Phone(ads=settings, clock=SystemClock()) as phone, Broker(phone) as broker:
            tokens = {name: phone.apps.add(name) for name in ("weather", "game")}

            def app() -> None:
                with connect(broker.address, tokens["weather"]) as connection:
                    ad = connection.show_ad("latte")
                    assert ad is not None
                    assert (ad.id, ad.text) == ("shoes", "Buy shoes!")
                    connection.clicked(ad.showing)
                    assert connection.show_ad("latte") is None
                with (
                    connect(broker.address, tokens["game"]) as connection,
                    pytest.raises(AppRefused, match="'game' may not show ads"),
                ):
                    connection.show_ad()

            await asyncio.to_thread(app)
            assert [(view.ad, view.clicked) for view in PrivateLog(phone.store).views()] == [("shoes", True)]
