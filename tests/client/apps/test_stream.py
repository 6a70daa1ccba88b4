"""One stream, written once, read by many at their own pace."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_client.apps.stream import Stream
from reticent_client.errors import Closed, LeftBehind
from tests.client.apps.phones import limited


def message(position: int) -> bytes:
    return f"{position}".encode()


async def available(stream: Stream, after: int | None) -> list[bytes]:
    """What a reader gets without waiting for anything new."""
    found: list[bytes] = []
    reader = stream.read(after)
    try:
        async with asyncio.timeout(0):
            async for each in reader:
                found.append(each)  # noqa: PERF401  # what was read before the end of patience is kept
    except TimeoutError:
        pass
    await reader.aclose()
    return found


@given(st.integers(1, 5), st.lists(st.integers(0, 40), unique=True, max_size=12).map(sorted), st.integers(-1, 45))
def test_a_reader_gets_what_came_after_or_is_told_that_it_is_gone(held: int, positions: list[int], after: int) -> None:
    async def play() -> None:
        stream = Stream(held)
        for position in positions:
            stream.write(position, message(position))
        due = [position for position in positions if position > after]
        if after == 0:  # all that are held
            assert await available(stream, after) == [message(position) for position in positions[-held:] if position]
        elif len(due) > held:
            with pytest.raises(LeftBehind):
                stream.read(after)
        else:
            assert await available(stream, after) == [message(position) for position in due]
        assert stream.last == ((positions[-1], message(positions[-1])) if positions else None)

    asyncio.run(play())


@limited
async def test_reading_begins_when_it_is_asked_for() -> None:
    """Not when the first message is waited for."""
    stream = Stream(5)
    stream.write(1, message(1))
    reader = stream.read()
    stream.write(2, message(2))
    assert await anext(reader) == message(2)
    await reader.aclose()


@limited
async def test_slow_readers_get_everything_that_is_held() -> None:
    stream = Stream(5)
    readers = [stream.read() for _ in range(3)]
    for position in range(5):
        stream.write(position, message(position))
    for count, reader in enumerate(readers):
        assert [await anext(reader) for _ in range(count)] == [message(position) for position in range(count)]
    stream.write(5, message(5))
    with pytest.raises(LeftBehind, match=r"^1 steps were dropped before they were read$"):
        await anext(readers[0])
    assert await anext(readers[1]) == message(1)
    assert await anext(readers[2]) == message(2)


@limited
async def test_closing_lets_readers_have_what_is_there() -> None:
    stream = Stream(5)
    reader, waiting = stream.read(), stream.read()
    first = asyncio.ensure_future(anext(waiting))
    await asyncio.sleep(0)
    stream.write(1, message(1))
    assert await first == message(1)
    second = asyncio.ensure_future(anext(waiting))
    await asyncio.sleep(0)
    stream.close()
    with pytest.raises(Closed, match="the phone shuts down"):
        await second
    assert await anext(reader) == message(1)
    for late in (reader, stream.read(), stream.read(1)):
        with pytest.raises(Closed):
            await anext(late)


@limited
async def test_a_reader_that_leaves_does_not_wake_or_stop_the_others() -> None:
    stream = Stream(5)
    readers = [asyncio.ensure_future(anext(stream.read())) for _ in range(3)]
    await asyncio.sleep(0)
    readers[0].cancel()
    await asyncio.sleep(0)
    assert readers[0].cancelled()
    stream.write(1, message(1))
    assert await asyncio.gather(*readers[1:]) == [message(1)] * 2


@pytest.mark.parametrize("position", [0, 3])
def test_positions_grow(position: int) -> None:
    stream = Stream(5)
    stream.write(3, message(3))
    with pytest.raises(ValueError, match=f"^position {position} does not follow 3$"):
        stream.write(position, message(position))
