"""`reticent ads`: the ad service as a process, and what its operator does."""

from __future__ import annotations

import asyncio
import datetime as dt
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from reticent.arguments import checked_positive
from reticent.clock import SystemClock, first_of
from reticent.console import process
from reticent.console.configuration import configured
from reticent.console.logs import start_logging
from reticent.console.options import AD_SERVICE, CERTIFICATES, AsJson, in_json
from reticent.console.text import printable
from reticent.rpc import RateLimit
from reticent.tls.certificates import Certificate
from reticent_agg.ads.explanation import RankedAd, ReplyExplanation, explain
from reticent_agg.ads.folder import AdFolder, AdSources, AdVersion, ServiceReport
from reticent_agg.ads.service import LIMITS, REPORT_INTERVAL, AdServer

__all__ = ["app"]

FOLDER = Path("ads")
WAIT = 60.0
"""Seconds that `load --wait` waits."""
EXPLAINED = 10
"""Ads that `explain` shows unless told otherwise."""
_ALIVE = dt.timedelta(seconds=3 * REPORT_INTERVAL)
"""The age of a report from which on the service counts as gone."""

app = App(
    name="ads",
    config=configured("ads"),
    default_parameter=Parameter(negative=()),
)

At = Annotated[Path, Parameter(name="--folder")]


@app.command
def serve(
    *,
    folder: At = FOLDER,
    phones: str = AD_SERVICE,
    certs: Annotated[Path, Parameter(name="--certs")] = CERTIFICATES,
    call_rate: float = LIMITS.call_rate.per_second,
    in_flight: int = LIMITS.in_flight,
    connections: int = LIMITS.connections,
    log_level: str = "info",
    log_json: bool = False,
) -> None:
    """Run an ad service until SIGINT or SIGTERM.

    It sends ads from the files that `reticent ads load` has put into the folder, and takes a new version within a
    second, or at once at SIGHUP. Without files, it refuses all requests as unavailable. It logs nothing about single
    requests. The server prints the address at which it listens.

    Args:
        folder: The folder with all files of the service.
        phones: The address at which the service listens for phones, as host:port.
        certs: The folder of certificates that `reticent certs init` makes.
        call_rate: The limit of calls per second from one network, with bursts of twice as many.
        in_flight: The limit of concurrent calls; one network may have half of them.
        connections: The limit of concurrent connections; one network may have a quarter of them.
        log_level: The lowest level that is logged on standard error: debug, info, warning or error. SIGUSR1
            logs one level more, SIGUSR2 one less, while the server runs.
        log_json: Log as JSON.
    """
    start_logging(log_level, log_json)
    checked_positive("--call-rate", call_rate)
    certificate = Certificate.load(certs, "ads")
    limits = replace(
        LIMITS,
        call_rate=RateLimit(call_rate, max(1.0, 2 * call_rate)),
        in_flight=in_flight,
        in_flight_per_network=max(1, in_flight // 2),
        connections=connections,
        connections_per_network=max(1, connections // 4),
    )
    opened = AdFolder(folder)

    async def serve_until(stop: asyncio.Event) -> None:
        credentials = certificate.server_credentials(mutual=False)
        service = AdServer(opened, phones=phones, credentials=credentials, limits=limits)
        # Before it listens: whoever sees that it serves may send the signal.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.check_folder)
        async with service:
            process.print_line(f"listening for phones at {service.address}")
            await first_of(stop.wait(), service.wait())

    with opened.serve_alone():
        process.run(serve_until)


@app.command
def load(
    *,
    folder: At = FOLDER,
    catalogue: Path | None = None,
    rates: Path | None = None,
    hierarchy: Path | None = None,
    max_ads: int | None = None,
    rates_per_ad: int | None = None,
    least_rate: float | None = None,
    least_support: float | None = None,
    wait: bool = False,
    as_json: AsJson = False,
) -> None:
    """Check new files in full, and replace those of the service in one step.

    A running service serves the new version within seconds, and no request fails meanwhile. If a file is bad, the old
    version stays. What is not given stays as it is; the first time, all three files are required.

    Args:
        folder: The folder with all files of the service.
        catalogue: The ads: CSV with the header ad,payment,category,text,cap,contexts.
        rates: The click-through rates, as `reticent rates estimate` saves them.
        hierarchy: The hierarchy of contexts, the same that phones have.
        max_ads: The most ads in a reply; at first 50.
        rates_per_ad: The most rates of an ad in a reply; at first 16.
        least_rate: Lower rates count as zero; at first 0.
        least_support: A context with fewer views of an ad has the ad's rate of the nearest ancestor with so many; at
            first 20.
        wait: Wait until the running service serves the new version, for at most a minute.
        as_json: Print JSON.
    """
    settings = {
        "max_ads": max_ads,
        "rates_per_ad": rates_per_ad,
        "least_rate": least_rate,
        "least_support": least_support,
    }
    opened = AdFolder(folder)
    given = {name: value for name, value in settings.items() if value is not None}
    version = opened.load(AdSources(catalogue, rates, hierarchy), given)
    if wait:
        opened.wait_until_served(version, WAIT)
    sys.stdout.write(in_json(version.to_document()) + "\n" if as_json else _version_text(version))


@app.command
def status(*, folder: At = FOLDER, as_json: AsJson = False) -> None:
    """Show the current version of the files, and how many requests the service has served.

    Args:
        folder: The folder with all files of the service.
        as_json: Print JSON.
    """
    opened = AdFolder(folder)
    version, report = _current(opened), opened.report()
    if as_json:
        content = {"version": version.to_document(), "service": None if report is None else asdict(report)}
        sys.stdout.write(in_json(content) + "\n")
    else:
        sys.stdout.write(_version_text(version) + _service_text(version, report))


@app.command(name="explain")
def explain_reply(
    node: str,
    /,
    *,
    folder: At = FOLDER,
    ads: int | None = None,
    ad: Annotated[list[str] | None, Parameter(name="--ad")] = None,
    as_json: AsJson = False,
) -> None:
    """Explain a reply: why its ads are there, with gains and rates, and why others are not.

    Args:
        node: The generalised context in its text form, such as "7|40.7,-73.9|food|shop".
        folder: The folder with all files of the service.
        ads: The number of ads that the phone asks for: unless given, 10, or the most in a reply if those are fewer.
        ad: An ad that may be missing in the reply. May be repeated.
        as_json: Print JSON.
    """
    opened = AdFolder(folder)
    version = _current(opened)
    number = min(EXPLAINED, version.settings.max_ads) if ads is None else ads
    found = explain(*opened.files(version), version.settings, node=node, ads=number, named=ad or ())
    sys.stdout.write(in_json(asdict(found)) + "\n" if as_json else "".join(f"{each}\n" for each in _lines(found)))


def _current(folder: AdFolder) -> AdVersion:
    version = folder.current()
    if version is None:
        raise ValueError(f"nothing is loaded into {folder.path}: run `reticent ads load`")
    return version


def _version_text(version: AdVersion) -> str:
    privacy = "not private: no noise"
    if version.epsilon is not None:
        privacy = f"at ({version.epsilon:g}, {version.delta:g}){', not private: the noise is seeded' * version.seeded}"
    known = version.ads - version.ads_without_rates
    settings = version.settings
    return (
        f"version {version.name}, loaded {version.loaded:%Y-%m-%d %H:%M:%S} UTC\n"
        f"ads        {version.ads:,}, {known:,} of them with rates\n"
        f"rates      {version.rates:,} from {printable(version.source)}, {privacy}\n"
        f"hierarchy  {version.nodes:,} nodes, {version.hierarchy}\n"
        f"replies    at most {settings.max_ads} ads with {settings.rates_per_ad} rates each; "
        f"rates from {settings.least_rate:g}, from {settings.least_support:g} views\n"
    )


def _service_text(version: AdVersion, report: ServiceReport | None) -> str:
    if report is None:
        return "service    has never run\n"
    if report.stopped or SystemClock().now() - report.reported > _ALIVE:
        state = f"is not running, last seen {report.reported:%Y-%m-%d %H:%M:%S} UTC"
    elif report.serving == version.name:
        state = "serves this version"
    else:
        state = f"serves {f'version {report.serving}' if report.serving else 'no version'}"
    reason = f"; it cannot load the current version: {printable(report.reason)}" if report.reason else ""
    since = f"since {report.started:%Y-%m-%d %H:%M:%S} UTC"
    return f"service    {state}{reason}\nrequests   {report.served:,} served, {report.refused:,} refused {since}\n"


def _lines(found: ReplyExplanation) -> Iterator[str]:
    yield f"{printable(found.node)}: estimates for {found.columns:,} contexts at or below it"
    if not found.chosen:
        yield "  no ad is sent: none has a rate here that counts, and a bid"
    for each in found.chosen:
        yield f"{each.place:3}  {printable(each.ad)}  adds {each.gain:.4g}"
        yield from _rate_lines(each)
    for each in found.others:
        yield f"  -  {printable(each.ad)}  adds {each.gain:.4g}; not sent: {each.reason}"
        yield from _rate_lines(each)


def _rate_lines(ad: RankedAd) -> Iterator[str]:
    for each in ad.rates:
        where = f"       {each.context}  frequency {each.frequency:.3g}, "
        if each.origin is None:
            yield printable(f"{where}no rate")
            continue
        yield printable(
            f"{where}rate {each.rate:.4g} ({each.low:.3g} to {each.high:.3g}) from {each.origin} "
            f"with {each.views:.0f} views, pays {each.payment:g}"
        )
