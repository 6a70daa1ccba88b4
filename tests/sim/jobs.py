"""Jobs for worker processes, which import only this module."""

import os
import signal
import time


def square(number: int) -> tuple[int, int]:
    return os.getpid(), number * number


def refuse(number: int) -> int:
    raise ValueError(f"no {number}")


def end(number: int) -> int:
    os._exit(number)


def wait_for_ever(_: int) -> None:
    time.sleep(1000)


def interrupt(_: int) -> bool:
    """Send the interrupt that ctrl-C sends to every process of a terminal."""
    os.kill(os.getpid(), signal.SIGINT)
    return True


def square_then_wait(number: int) -> int:
    if number > 1:
        wait_for_ever(number)
    return number * number
