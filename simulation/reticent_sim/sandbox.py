"""`reticent sandbox`: two servers, phones and an analyst on this machine, to try commands with."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts.validators import Number

from reticent.clock import first_of
from reticent.console import process
from reticent.privacy import Bin, Cost, Query, QueryLimits
from reticent.protocol.invitation import Invitation
from reticent.randomness import seeded
from reticent_client import Participation, Phone, PhoneStore
from reticent_sim.engine import ANALYST, ServerPair, launched
from reticent_sim.sandbox_ads import AdSandbox

app = cyclopts.App(name="sandbox")

FEWEST, MOST = 10, 1000
"""Phones of a sandbox. With fewer, a cohort has too few honest contributions to hide among."""
POLL_INTERVAL = 1.0
"""Seconds after which phones look for announced queries."""
JOINING = 50
"""Phones that enrol at the same time."""
ENOUGH = 150
"""Phones from which on estimated rates are more than noise, and an ad service has ads to send."""
CLEAN_TIMEOUT = 60.0
BUDGET = Cost(12.0, 1e-4)
"""The budget of each phone with ads: the default one does not suffice for the other examples and rates."""

QUESTION = """\
# How many phones were at the gym? Add counters, with the bounds of one phone's contribution to each.
id = "gym"
epsilon = 1.0
delta = 1e-6
closes_after = "2min"
enough = {phones}
[counters]
gym = [0, 1]
[expected]
absent = 0.05
"""

SLOW_QUESTION = """\
# This query stays open for half a minute, so that a phone of your own can contribute.
id = "swim"
epsilon = 1.0
delta = 1e-6
closes_after = "30s"
[counters]
swim = [0, 1]
[expected]
absent = 0.05
"""

_CLEANER = 'read -r _; for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$0" && exit; sleep 0.3; done'
"""A shell script that waits for the end of its standard input. Then it deletes the folder that it has got."""


@app.default
def sandbox(
    *,
    phones: Annotated[int, cyclopts.Parameter(validator=Number(gte=FEWEST, lte=MOST))] = 20,
    folder: Path | None = None,
    ads: Annotated[bool, cyclopts.Parameter(negative=())] = False,
) -> None:
    """Run two servers, phones and an analyst on this machine, and print commands to try, until SIGINT or SIGTERM.

    The phones contribute made-up numbers to all announced queries. The keys are short: use nothing of it elsewhere.

    Args:
        phones: The number of phones, from 10 to 1000.
        folder: An empty folder for all files, which stays. The default is a temporary folder, which is deleted at the
            end.
        ads: Run an ad service, too. The phones have made-up logs of ads, from which rates can be estimated.
    """
    with _place(folder) as place:
        pair = ServerPair(
            place,
            keys_options=("--join-rate", str(phones), "--min-honest", str(_min_honest(phones))),
            aggregation_options=("--poll-interval", str(POLL_INTERVAL)),
        )
        with launched(pair) as servers:
            invitations = servers.invitations(phones)
            _write_examples(place, phones)
            kept = folder is not None
            with _ad_service(servers) if ads else contextlib.nullcontext() as service:
                process.run(lambda stop: first_of(stop.wait(), _run_phones(servers, invitations, service, kept=kept)))


@contextlib.contextmanager
def _ad_service(servers: ServerPair) -> Iterator[AdSandbox]:
    """An ad service that runs, and is killed in the end."""
    sandbox = AdSandbox(servers)
    try:
        sandbox.server.start()
        yield sandbox
    finally:
        if sandbox.server.is_running:
            sandbox.server.kill()


@contextlib.contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    """The folder. A temporary one is deleted at the end, also if this process is killed."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty: a sandbox needs a folder of its own")
        yield folder.resolve()
        return
    place = Path(tempfile.mkdtemp(prefix="reticent-sandbox-")).resolve()
    # The kernel closes the pipe when this process ends, for whatever reason.
    with subprocess.Popen(  # noqa: S603  # a constant
        ["/bin/sh", "-c", _CLEANER, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # no signal of the terminal reaches it
    ) as cleaner:
        try:
            yield place
        finally:
            cleaner.communicate(timeout=CLEAN_TIMEOUT)


def _write_examples(place: Path, phones: int) -> None:
    (place / "gym.toml").write_text(QUESTION.format(phones=phones), encoding="utf-8")
    (place / "swim.toml").write_text(SLOW_QUESTION, encoding="utf-8")
    (place / "participation.toml").write_text(f"min_honest = {_min_honest(phones)}\n", encoding="utf-8")


def _min_honest(phones: int) -> int:
    """The fewest honest contributions that are decrypted: fewer than by default if there are few phones."""
    return min(QueryLimits.min_honest, phones // 2)


async def _run_phones(
    servers: ServerPair, invitations: Sequence[Invitation], ads: AdSandbox | None, *, kept: bool
) -> None:
    """Enrol the phones, print what there is, and let the phones take part."""
    participation = Participation(min_honest=_min_honest(len(invitations)))
    async with contextlib.AsyncExitStack() as stack:
        store = stack.enter_context(contextlib.closing(PhoneStore(servers.folder / "phones.db")))
        turns = asyncio.Semaphore(JOINING)
        stores = [store.of(f"phone {number}") if number else store for number in range(len(invitations))]
        if ads is not None:
            for number, own in enumerate(stores):
                ads.add_views(own, number)
        phones = [
            await stack.enter_async_context(
                Phone(
                    store=own,  # commands show the first one
                    participation=participation,
                    budget=None if ads is None else BUDGET,
                    counters=_counters(number),
                    ads=None if ads is None else ads.settings(),
                    simulation=True,
                )
            )
            for number, own in enumerate(stores)
        ]

        async def join(phone: Phone, invitation: Invitation) -> None:
            async with turns:
                await phone.counting.join(invitation)

        await asyncio.gather(*map(join, phones, invitations))
        process.print_line(_text(servers, ads, len(phones), kept=kept))
        await asyncio.gather(*(phone.wait() for phone in phones))


def _counters(phone: int) -> Callable[[Query], Mapping[str, float]]:
    """Made-up numbers of a phone for every counter of a query."""
    return partial(_made_up, phone)


def _made_up(phone: int, query: Query) -> dict[str, float]:
    rng = seeded("sandbox", phone, query.id)
    numbers: dict[str, float] = {}
    ranges: dict[str, list[Bin]] = {}
    for counter in query.counters:
        found = Bin.of(counter.name)
        if found is None:
            numbers[counter.name] = float(rng.integers(counter.low, counter.high, endpoint=True))
        else:
            ranges.setdefault(found.number, []).append(found)
    for name, bins in ranges.items():  # a number in one of the ranges of a histogram
        chosen = bins[rng.integers(len(bins))]
        numbers[name] = chosen.low if chosen.low > -float("inf") else chosen.high - 1
    return numbers


def _text(servers: ServerPair, ads: AdSandbox | None, phones: int, *, kept: bool) -> str:
    """The addresses, and commands to try."""
    lines = [
        f"folder              {servers.folder} ({'stays' if kept else 'is deleted at the end'})",
        f"key server          {servers.enrolment.address} for phones",
        f"                    {servers.deciding.address} for the aggregation server",
        f"aggregation server  {servers.collecting.address} for phones",
        f"                    {servers.counting.address} for analysts",
        *([] if ads is None else [f"ad service          {ads.server.endpoint.address} for phones"]),
        f"phones              {phones} are enrolled, and contribute made-up numbers",
        "",
        "Commands to try in another terminal:",
    ]
    for title, commands in [*_examples(servers), *([] if ads is None else _ad_examples(servers, ads, phones))]:
        lines += ["", f"{title}:", *(f"  {command}" for command in commands)]
    return "\n".join([*lines, "", "Stop with ctrl-C."])


def _examples(servers: ServerPair) -> list[tuple[str, list[str]]]:
    folder = servers.folder
    analyst = (
        *("--address", servers.counting.address, "--identity", servers.keys_folder / "identity.pub"),
        *("--certs", servers.certs, "--analyst", ANALYST),
    )
    addresses = ("--key-server", servers.enrolment.address, "--aggregation-server", servers.collecting.address)
    operator = ("--folder", servers.keys_folder)
    own = ("--store", folder / "own.db")
    return [
        (
            "Count the phones at the gym (a second query needs another --id)",
            [_line("count", "new", folder / "gym.toml", *analyst, "--yes")],
        ),
        ("See all queries", [_line("count", "status", *analyst)]),
        (
            "See the membership, the budget and the contributions of the first phone",
            [_line("phone", "status", "--store", folder / "phones.db")],
        ),
        ("See the key server's phones and keys", [_line("keys", "status", *operator)]),
        (
            "Add a phone of your own, and let it contribute to a query that is open for up to 30 seconds",
            [
                _line("keys", "invite", "--output", folder / "own", *operator, "--certs", servers.certs, *addresses),
                f"{_line('phone', 'join')} {shlex.quote(str(folder / 'own'))}/*.json {shlex.join(map(str, own))}",
                _line("count", "new", folder / "swim.toml", *analyst, "--yes", "--no-wait"),
                _line(
                    *("phone", "contribute", "swim=1", *own, "--simulation"),
                    *("--participation", folder / "participation.toml"),
                ),
                _line("count", "result", "swim", *analyst),
            ],
        ),
    ]


def _ad_examples(servers: ServerPair, ads: AdSandbox, phones: int) -> list[tuple[str, list[str]]]:
    store, rates = servers.folder / "phones.db", servers.folder / "rates.npz"
    analyst = (
        *("--address", servers.counting.address, "--identity", servers.keys_folder / "identity.pub"),
        *("--certs", servers.certs, "--analyst", ANALYST),
    )
    service = ("--folder", ads.server.files)
    few = " (of so few, they are mostly noise: try --phones 300)" * (phones < ENOUGH)
    examples = [
        (
            "See which ad the first phone would show in the old town to somebody who searches for an espresso, and why",
            [_line("phone", "ads", "try", ads.settings_file, "espresso", "--label", "old town", "--store", store)],
        ),
        (
            f"Estimate click-through rates from the private logs of the phones{few}",
            [
                _line(
                    *("rates", "estimate", rates, "--hierarchy", ads.hierarchy_file, "--ads", ads.catalogue_file),
                    *("--id", "rates", "--epsilon", "4", "--delta", "1e-5", "--entries", "4", "--depth", "1"),
                    *("--absent", "0.05", "--closes-after", "10s", *analyst, "--yes"),
                ),
                _line("rates", "show", rates, "--hierarchy", ads.hierarchy_file),
            ],
        ),
    ]
    if phones >= ENOUGH:
        load = _line("ads", "load", *service, "--rates", rates, "--wait")
        explain = _line("ads", "explain", str(ads.hierarchy.nodes[0]), *service)
        title = "Let the ad service use them, and see what it sends for a request that says nothing"
        examples.append((title, [load, explain]))
    return examples


def _line(*words: str | Path) -> str:
    """A command for a shell."""
    return shlex.join(["reticent", *map(str, words)])
