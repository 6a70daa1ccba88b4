"""Processes that check receipts, one per core: `cryptography` holds Python's lock, so threads would share one core.

A process gets the key of a query through a pipe, and writes nothing to disk. It ends when the pipe closes, and so also
when the server is killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self, cast

from reticent.console.process import forbid_core_dumps
from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from reticent_keys.receipts import CheckedReceipts, Expectation, Receipts, check

__all__ = ["ReceiptWorkers", "serve"]

_log = logging.getLogger(__name__)

MAX_PROCESSES = 8
"""More do not help: the server itself needs a tenth of their time for each receipt."""
IDLE_SECONDS = 60.0
"""A process without work ends after this time."""
REPLY_TIMEOUT = 60.0
"""Seconds in which a process must start and reply. With the most ciphertexts, a thousand receipts take four seconds."""
ATTEMPTS = 2
_SERVE = f"from {__name__} import serve; serve()"


class ReceiptWorkers:
    """Checks receipts in processes, which start when they are first needed.

    It is its own context: at its end, the processes end.

    Args:
        processes: The number of processes; by default one per core.
    """

    def __init__(self, processes: int | None = None) -> None:
        self.processes = processes or min(os.cpu_count() or 1, MAX_PROCESSES)
        self._threads = ThreadPoolExecutor(self.processes, thread_name_prefix="receipts")
        self._idle = SimpleQueue[_ReceiptProcess]()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the processes, when they have done what they are doing."""
        self._threads.shutdown(cancel_futures=True)
        with contextlib.suppress(Empty):
            while True:
                self._idle.get_nowait().end()

    def submit(self, expectation: Expectation, some: Receipts) -> Future[CheckedReceipts]:
        """Check receipts in a process, as `reticent_keys.receipts.check` does.

        The result may also raise Refused: UNAVAILABLE: the processes ended.
        """
        return self._threads.submit(self._check, expectation, some)

    def _check(self, expectation: Expectation, some: Receipts) -> CheckedReceipts:
        """Run by a thread, which waits for a process."""
        content = wire.Receipts(receipts=some.receipts).SerializeToString()
        for attempt in range(ATTEMPTS):  # a process may be killed: checking again changes nothing
            process = _ReceiptProcess() if attempt else self._process()  # those that wait may all end at once
            try:
                reply = process.reply((expectation, content, some.verify_keys))
            except (EOFError, OSError) as error:
                process.end()
                _log.warning("a process that checks receipts ended", extra={"reason": str(error)})
                continue
            self._idle.put(process)
            if isinstance(reply, Refused):
                raise reply
            checked = cast("CheckedReceipts", reply)
            if checked.contributors != len(some.receipts):
                break
            return checked
        raise Refused(Refusal.UNAVAILABLE, "receipts cannot be checked at present")

    def _process(self) -> _ReceiptProcess:
        """A process that runs and has nothing to do."""
        with contextlib.suppress(Empty):
            while True:
                process = self._idle.get_nowait()
                if process.is_running:
                    return process
                process.end()
        return _ReceiptProcess()


class _ReceiptProcess:
    """A process that checks some receipts after the other. It inherits nothing of this process but a pipe."""

    def __init__(self) -> None:
        self._pipe, there = Pipe()
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109  # a string
        with there:
            self._process = subprocess.Popen(  # noqa: S603  # this module
                [sys.executable, "-P", "-c", _SERVE, str(there.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                env=os.environ | {"PYTHONPATH": paths},
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def reply(self, request: tuple[Expectation, bytes, object]) -> object:
        """The reply to a request. A process that does not reply in time is killed, which ends the waiting."""
        timer = threading.Timer(REPLY_TIMEOUT, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            self._pipe.send(request)
            return self._pipe.recv()
        finally:
            timer.cancel()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()


def serve() -> None:
    """Run by a process: check receipts until the pipe closes."""
    forbid_core_dumps()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):  # the server handles them
        signal.signal(each, signal.SIG_IGN)
    pipe = Connection(int(sys.argv[1]))
    with contextlib.suppress(EOFError, OSError):  # the server is gone
        while pipe.poll(IDLE_SECONDS):
            expectation, content, verify_keys = pipe.recv()
            receipts = wire.Receipts.FromString(content).receipts
            try:
                pipe.send(check(expectation, Receipts(receipts, verify_keys)))
            except Refused as refused:
                pipe.send(refused)
