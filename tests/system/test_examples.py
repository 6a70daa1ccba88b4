"""The examples run as their readers would run them: against a phone that is a process of its own."""

import base64
import contextlib
import copy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from reticent_client import MarkovChain, PhoneStore, adaptive
from reticent_client.ads.log import LoggedView, PrivateLog
from reticent_client.apps.tokens import Apps
from reticent_client.mask.days_file import DayRecord, write_days
from tests.client.ads.world import HIERARCHY, StubService, in_thread, wire_ad

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
JAVASCRIPT = EXAMPLES / "javascript"
DEADLINE = 60  # seconds
USUAL = ["home", "home", "work", "work", "work", "work", "home", "home"]
VISIT = ["home", "home", "work", "hospital", "pharmacy", "work", "home", "home"]
DAYS = [USUAL, USUAL, VISIT, USUAL, VISIT, USUAL]


@pytest.fixture
def phone(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A phone that lives through some days: its address, and the token of an app."""
    chain = MarkovChain.fit(DAYS * 4)
    adaptive(chain, sensitive={"hospital"}, delta=0.1).save(tmp_path / "policy.npz")
    with (tmp_path / "days.csv").open("w", newline="") as file:
        write_days(file, [DayRecord(f"2027-02-{number:02}", list(day)) for number, day in enumerate(DAYS, start=1)])
    store = PhoneStore(tmp_path / "phone.db")
    token = Apps(store).add("silent")
    store.close()
    address = f"unix:{tmp_path / 'phone.sock'}"
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "reticent", "phone", "run", "policy.npz", "--address", address),
            *("--traces", "days.csv", "--fast", "60000"),
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as served:
        assert served.stdout is not None
        assert served.stdout.readline().startswith("serving at ")
        yield address, token
        served.communicate(timeout=DEADLINE)  # until the traces have ended
        assert served.returncode == 0


@pytest.mark.slow
def test_the_app_in_five_lines_hears_each_step(phone: tuple[str, str]) -> None:
    address, token = phone
    code = (EXAMPLES / "silent.py").read_text()
    assert len([line for line in code.splitlines() if line]) <= 5
    with subprocess.Popen(
        [sys.executable, EXAMPLES / "silent.py", address, token], stdout=subprocess.PIPE, text=True
    ) as app:
        assert app.stdout is not None
        heard: list[tuple[str, ...]] = [
            tuple(app.stdout.readline().split()) for _ in range(16)
        ]  # two days, wherever they begin
        app.terminate()
    times = [f"{hour:02}:00" for hour in range(0, 24, 3)]
    first = times.index(heard[0][0])
    assert [time for time, _ in heard] == [times[(first + k) % 8] for k in range(16)]
    assert {"00:00": "loud", "06:00": "silent"}.items() <= {each[0]: each[1] for each in heard}.items()


@pytest.mark.slow
def test_an_app_in_javascript_hears_what_the_phone_tells(phone: tuple[str, str]) -> None:
    """A client that is not ours: grpc-js, from the proto alone."""
    node = shutil.which("node")
    if node is None or not (JAVASCRIPT / "node_modules").exists():
        pytest.skip("needs Node and `npm ci --prefix examples/javascript`")
    address, token = phone
    app = subprocess.run(
        [node, JAVASCRIPT / "silent.js", address, token, "0"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert app.returncode == 0, app.stderr
    assert "UNAVAILABLE" in app.stderr  # the traces have ended
    heard = [line.split() for line in app.stdout.splitlines()]
    assert [(day, time) for day, time, _, _ in heard] == [
        (f"2027-02-{number:02}", f"{hour:02}:00") for number in range(1, len(DAYS) + 1) for hour in range(0, 24, 3)
    ]
    for (_, _, mood, context), happened in zip(heard, [context for day in DAYS for context in day], strict=True):
        assert context in {happened, "-"}
        assert mood == ("silent" if context == "work" else "loud")
    assert {context for *_, context in heard} == {"home", "work", "-"}


@pytest.mark.slow
def test_an_app_in_javascript_shows_an_ad_and_reports_a_click(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not (JAVASCRIPT / "node_modules").exists():
        pytest.skip("needs Node and `npm ci --prefix examples/javascript`")
    HIERARCHY.save(tmp_path / "hierarchy.json")
    with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
        tokens = {name: Apps(store).add(name) for name in ("shop", "game")}
    address = f"unix:{tmp_path / 'phone.sock'}"
    with in_thread(StubService([wire_ad("shoes", {})])) as service:
        (tmp_path / "ads.toml").write_text(
            f'hierarchy = "hierarchy.json"\nservice = "{service.address}"\n'
            'apps = ["shop"]\nlevel = 3\ninterest = "jazz"\nmax_per_day = 1\n'
        )
        with subprocess.Popen(
            [*(sys.executable, "-m", "reticent", "phone", "run", "--ads", "ads.toml", "--address", address)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        ) as served:
            assert served.stdout is not None
            assert served.stdout.readline().startswith("serving at ")

            def app(name: str, *arguments: str) -> tuple[int, str]:
                command = [node, str(JAVASCRIPT / "ad.js"), address, tokens[name], *arguments]
                done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
                return done.returncode, done.stdout + done.stderr

            assert app("shop", "latte", "click") == (0, "shoes: Buy shoes!\nclicked\n")
            assert app("shop", "latte") == (0, "no ad\n")
            assert app("game", "latte") == (1, "the phone refused: PERMISSION_DENIED: 'game' may not show ads\n")
            served.terminate()
    with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
        assert PrivateLog(store).views() == [LoggedView(None, "shoes", clicked=True)]


@pytest.mark.slow
def test_a_wrong_token_ends_the_javascript_app_with_a_sentence(phone: tuple[str, str]) -> None:
    node = shutil.which("node")
    if node is None or not (JAVASCRIPT / "node_modules").exists():
        pytest.skip("needs Node and `npm ci --prefix examples/javascript`")
    app = subprocess.run(
        [node, JAVASCRIPT / "silent.js", phone[0], "guessed"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert app.returncode == 1
    assert app.stderr.startswith("the phone refused: UNAUTHENTICATED: no app has this token")


def test_nothing_in_the_javascript_lock_is_an_address() -> None:
    assert "://" not in (JAVASCRIPT / "package-lock.json").read_text()


@pytest.mark.slow
def test_the_notebook_prints_what_it_shows(tmp_path: Path) -> None:
    shown: Any = nbformat.read(EXAMPLES / "a_day.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    run = copy.deepcopy(shown)
    nbclient.NotebookClient(
        run, timeout=DEADLINE * 5, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    assert [_printed(cell) for cell in run.cells] == [_printed(cell) for cell in shown.cells]
    assert sum(_pictures(cell) for cell in run.cells) == sum(_pictures(cell) for cell in shown.cells) == 2


def _printed(cell: Any) -> list[str]:
    outputs = cell.get("outputs", [])
    assert all(output["output_type"] != "error" and output.get("name") != "stderr" for output in outputs)
    texts = [output.get("text", output.get("data", {}).get("text/plain", "")) for output in outputs]
    return ["".join(texts[k] for k in range(len(texts)) if "image/png" not in outputs[k].get("data", {}))]


def _pictures(cell: Any) -> int:
    """How many pictures a cell shows; each is a PNG that is not empty."""
    pngs = [output["data"]["image/png"] for output in cell.get("outputs", []) if "image/png" in output.get("data", {})]
    assert all(len(base64.b64decode(png)) > 5000 for png in pngs)
    return len(pngs)
