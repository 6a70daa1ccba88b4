"""How all tests run: hypothesis profiles, and no skips where RETICENT_NO_SKIPS is set."""

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator

import hypothesis
import pytest

NO_SKIPS = os.environ.get("RETICENT_NO_SKIPS") == "1"

# A shell starts what is in its background with SIGINT ignored, and so would be the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The machine's speed is not what a property is about, hence no deadlines.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=12)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, print_blob=True)
hypothesis.settings.register_profile(  # as in CI, and the first failing example will do
    "mutants",
    deadline=None,
    max_examples=100,
    derandomize=True,
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick"))


def pytest_collection_finish() -> None:
    """Exempt what was imported and collected from garbage collection, which takes a twentieth of the time otherwise."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many mutants of a change were not tried."""
    reports = [each for found in terminalreporter.stats.values() for each in found]
    if any("::test_no_mutant_of_what_has_changed_survives[" in getattr(each, "nodeid", "") for each in reports):
        from tests.mutants.test_mutants import LEFT, SINCE  # noqa: PLC0415  # reads the repository

        if LEFT:
            line = f'{LEFT} mutants of this change were left to: make mutants ARGS="--changed-since {SINCE}"'
            terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if NO_SKIPS and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if NO_SKIPS and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo what a server's command changes in the process when a test runs it here: logs and uncaught errors."""
    root, hooks = logging.getLogger(), (sys.excepthook, threading.excepthook)
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    sys.excepthook, threading.excepthook = hooks


@pytest.fixture
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL database of the test's own."""
    from tests.postgres import server  # noqa: PLC0415  # few tests need psycopg

    with server().database() as url:
        yield url
