"""A cheap seal for the tests that start no process."""

from collections.abc import Iterator

import pytest

from reticent_keys import KeyPair, sealing

SCRYPT_COST = dict(sealing.SCRYPT_COST)
"""The real cost: 128 MB and about half a second a key."""
CHEAP = 1 << 4


@pytest.fixture(scope="module", autouse=True)
def _cheap_seal(request: pytest.FixtureRequest) -> Iterator[None]:
    """Slow modules keep the real cost: their processes must open what their tests seal."""
    with pytest.MonkeyPatch.context() as patch:
        if getattr(request.module, "pytestmark", None) != pytest.mark.slow:
            patch.setitem(sealing.SCRYPT_COST, "n", CHEAP)
        yield


@pytest.fixture
def decryptions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ciphertexts were decrypted, each time."""
    counted: list[int] = []
    decrypt = KeyPair.decrypt

    def counting(pair: KeyPair, ciphertexts: list[int]) -> list[int]:
        counted.append(len(ciphertexts))
        return decrypt(pair, ciphertexts)

    monkeypatch.setattr(KeyPair, "decrypt", counting)
    return counted
