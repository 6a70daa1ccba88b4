"""Where a server is, as people write it, and who is one caller."""

import asyncio

import grpc
import pytest

from reticent.address import AddressError, bind, check_address, network


@pytest.mark.parametrize("address", ["keys.example.org:7101", "127.0.0.1:1", "[::1]:65535", "localhost:7101", "a_b:1"])
def test_host_and_port_are_an_address(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "nonsense",
        ":7101",
        "a:0",
        "a:65536",
        "a:" + "9" * 5000,
        "a b:1",
        "::1:7101",
        "[a]:1",
        "[127.0.0.1]:1",
        "a:٣",
        "a:1\n",
        "http://a:1",
        "-a:1",
        "a-:1",
    ],
    ids=lambda each: each[:12],
)
def test_anything_else_is_none(address: str) -> None:
    with pytest.raises(ValueError, match="an address is host:port"):
        check_address(address)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("unix", "unix"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::ffff", "2001:db8:1:2::/64"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_whoever_has_a_network_is_one_caller(address: str, expected: str) -> None:
    """Nobody gets more by taking another of the addresses that are all theirs."""
    assert network(address) == expected


@pytest.mark.parametrize("port", ["65536", "99999", "4295037296"])
def test_nobody_listens_at_a_port_that_is_none(port: str) -> None:
    async def scene() -> None:
        with pytest.raises(AddressError, match="ports end at 65535"):
            bind(grpc.aio.server(), f"127.0.0.1:{port}", None)

    asyncio.run(scene())
