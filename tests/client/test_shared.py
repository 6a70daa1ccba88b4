"""Objects that users of an event loop share."""

import asyncio

from reticent_client.shared import SharedObjects


class Connection:
    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


def test_users_of_a_name_share_one_object_which_the_last_one_closes() -> None:
    async def use() -> None:
        shared: SharedObjects[Connection] = SharedObjects()
        async with shared.use("a", Connection) as first:
            async with shared.use("a", Connection) as second, shared.use("b", Connection) as other:
                assert second is first
                assert other is not first
            assert (first.closed, other.closed) == (0, 1)
        assert first.closed == 1
        async with shared.use("a", Connection) as third:
            assert third is not first

    asyncio.run(use())


def test_each_event_loop_has_its_own_object() -> None:
    shared: SharedObjects[Connection] = SharedObjects()

    async def use() -> Connection:
        async with shared.use("a", Connection) as connection:
            return connection

    assert asyncio.run(use()) is not asyncio.run(use())
