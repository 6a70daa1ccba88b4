"""`reticent phone apps`: who may listen, and no longer."""

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from reticent_client import PhoneStore
from reticent_client.apps.connection import connect
from reticent_client.errors import AppRefused
from tests.client.apps.command import Ask, Run, serving
from tests.client.apps.phones import served_phone


def test_apps_come_and_go(folder: Path, ask: Ask) -> None:
    for arguments in (["list"], ["list", "--json"], ["remove", "weather"]):  # a name that was mistyped makes no file
        assert ask("apps", *arguments, code=2) == ("", "reticent: there is no phone store at phone.db\n")
    assert not (folder / "phone.db").exists()
    added = (["weather"], ["my diary", "--trusted"], ["weather"])
    tokens = [ask("apps", "add", *each)[0] for each in added]
    assert len(set(tokens)) == 3
    assert all(len(token) == 44 for token in tokens)
    assert ask("apps", "list")[0] == "my diary (trusted: receives every context)\nweather\n"
    assert json.loads(ask("apps", "list", "--json")[0]) == [
        {"name": "my diary", "trusted": True},
        {"name": "weather", "trusted": False},
    ]
    stored = b"".join(path.read_bytes() for path in folder.glob("phone.db*"))
    assert not any(token.strip().encode() in stored for token in tokens)
    ask("apps", "remove", "weather")
    unknown = "reticent: there is no app 'weather': known are 'my diary'\n"
    assert ask("apps", "remove", "weather", code=3) == ("", unknown)
    ask("apps", "remove", "my diary")
    assert ask("apps", "list") == ("", "")
    assert ask("apps", "list", "--json") == ("[]\n", "")


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", "\x1b[31m"])
def test_a_name_that_could_deceive_is_refused(ask: Ask, name: str) -> None:
    refusal = f"reticent: an app's name is 1 to 64 printable characters: got {name!r}\n"
    assert ask("apps", "add", name, code=2) == ("", refusal)


@pytest.mark.slow
def test_a_token_that_is_taken_back_ends_a_stream_of_a_running_phone(folder: Path, run: Run) -> None:
    with serving(folder, "quick.npz", "--first-day") as phone:
        address = phone.address
        token = run("apps", "add", "weather").stdout.strip()
        with connect(address, token) as connection:
            stream = connection.stream()
            next(stream)
            run("apps", "remove", "weather")
            with pytest.raises(AppRefused, match="the token was revoked"):
                list(stream)
        assert phone.stop()[0] == 0


@pytest.mark.parametrize("command", [["remove", "diary"], ["add", "diary"]])
def test_contexts_leave_the_disk_with_the_last_trusted_app(folder: Path, ask: Ask, command: list[str]) -> None:
    """Also where the phone does not run, and by a new token for the same app, which is trusted no more."""

    async def live() -> None:
        with contextlib.closing(PhoneStore(folder / "phone.db")) as store:
            async with (
                served_phone(store=store) as home,
                home.app("diary", trusted=True),
                home.app("clock", trusted=True),
            ):
                await home.live("hospital")

    asyncio.run(live())
    ask("apps", "remove", "clock")
    assert b"hospital" in (folder / "phone.db").read_bytes()
    ask("apps", *command)
    assert b"hospital" not in (folder / "phone.db").read_bytes()
