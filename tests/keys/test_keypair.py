import contextlib
import copy
import errno
import hashlib
import os
import pickle
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gmpy2
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from reticent.errors import ReticentError
from reticent.paillier import BadCiphertexts, PublicKey
from reticent.randomness import secure
from reticent.storage.files import create
from reticent_keys import KeyFileError, KeyPair, KeysError, WrongPassphrase, sealing
from tests.keys.conftest import SCRYPT_COST
from tests.parties.key_pairs import generated, pair, primes

PASSPHRASE = "correct horse battery staple"  # noqa: S105  # of keys that live as long as a test
BITS = 1024


@pytest.fixture(scope="module")
def sealed() -> bytes:
    return pair().to_bytes(PASSPHRASE)


def test_primes_are_as_the_proof_asks() -> None:
    for number in range(4):
        made = generated(number=number)
        p, q = primes(made)
        assert gmpy2.is_prime(p)
        assert gmpy2.is_prime(q)
        assert p % 4 == q % 4 == 3
        assert gmpy2.gcd(p - 1, q - 1) == 2
        assert p * q == made.public.n
        assert p.bit_length() == q.bit_length() == BITS // 2
        assert made.public.bits == BITS


def test_the_base_is_minus_a_square() -> None:
    for number in range(4):
        made = generated(number=number)
        for prime in primes(made):
            assert pow(-made.public.base, (prime - 1) // 2, prime) == 1  # Euler's criterion


def test_no_two_key_pairs_are_alike() -> None:
    made = [generated(number=number) for number in range(4)]
    assert len({prime for each in made for prime in primes(each)}) == 8
    assert len({each.public.key_id for each in made}) == 4


@pytest.mark.parametrize("bits", [0, 1023, 1024, 2048, 3071, 8192])
def test_other_lengths_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match=f"bits must be one of 3072, 4096: got {bits}"):
        KeyPair.generate(bits)


def test_numbers_that_make_no_key_pair() -> None:
    (p, q), base = primes(pair()), pair().public.base
    one_modulo_four = int(gmpy2.next_prime(p))
    while one_modulo_four % 4 != 1:
        one_modulo_four = int(gmpy2.next_prime(one_modulo_four))
    for wrong, message in [
        ((p, q + 1, base), "must be prime"),
        ((p, 7, base), "of one length"),
        ((p, p, base), "3 modulo 4, and p - 1 and q - 1"),
        ((p, one_modulo_four, base), "3 modulo 4, and p - 1 and q - 1"),
        ((p, q, p * q - base), "minus a square"),
    ]:
        with pytest.raises(ValueError, match=message):
            KeyPair(*wrong, simulation=True)


def test_a_key_pair_tells_nobody_its_primes(capsys: pytest.CaptureFixture[str]) -> None:
    made = pair()
    print(made, [made], f"{made!r} {made!s}")  # noqa: T201  # to see what it says
    shown = capsys.readouterr().out
    assert shown.count(repr(made.public)) == 4
    for secret in primes(made):
        assert str(secret) not in shown
        assert f"{secret:x}" not in shown
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="a key pair cannot be copied or pickled"):
            leak(made)


def test_decryption_refuses_what_is_no_ciphertext() -> None:
    made = pair()
    good = made.public.encrypt([1, 2], secure())
    with pytest.raises(BadCiphertexts) as refusal:
        made.decrypt([good[0], primes(made)[0], good[1], 0])
    assert sorted(refusal.value.faults) == [1, 3]
    assert made.decrypt([]) == []


def test_decryption_leaves_the_callers_arithmetic_alone() -> None:
    before = gmpy2.get_context().allow_release_gil
    pair().decrypt(pair().public.encrypt(range(8), secure()))
    assert gmpy2.get_context().allow_release_gil == before


def test_sealed_and_opened_it_is_the_same(sealed: bytes) -> None:
    opened = KeyPair.from_bytes(sealed, PASSPHRASE, simulation=True)
    assert opened.public == pair().public
    assert primes(opened) == primes(pair())
    assert opened.decrypt(pair().public.encrypt([-5], secure())) == [-5]


def test_nothing_of_it_stands_in_plain(sealed: bytes) -> None:
    for secret in (*primes(pair()), pair().public.base, pair().public.n):
        for order in ("big", "little"):
            content = secret.to_bytes(-(-secret.bit_length() // 8), order)
            assert content[8:24] not in sealed
        assert str(secret).encode()[:20] not in sealed
        assert f"{secret:x}".encode()[:20] not in sealed


def test_sealed_twice_it_differs(sealed: bytes) -> None:
    again = pair().to_bytes(PASSPHRASE)
    assert len(again) == len(sealed)
    start = len(sealing.KEY_PAIR.head)
    assert again[start : start + 16] != sealed[start : start + 16]
    assert again[start + 28 : -32] != sealed[start + 28 : -32]


@pytest.mark.parametrize("wrong", ["", "correct horse", PASSPHRASE + " ", PASSPHRASE.upper()])
def test_a_wrong_passphrase(sealed: bytes, wrong: str) -> None:
    with pytest.raises(WrongPassphrase, match=r"^the passphrase is not the one that .* sealed with$") as refusal:
        KeyPair.from_bytes(sealed, wrong, simulation=True)
    assert refusal.value.__suppress_context__  # one clear error
    assert isinstance(refusal.value, KeysError)
    assert isinstance(refusal.value, ReticentError)


def test_any_damage_shows(sealed: bytes) -> None:
    """One bit, in each of the bytes; the first are the format, the next the version."""
    for place in range(len(sealed)):
        damaged = bytearray(sealed)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(KeyFileError, match=r"no key pair|of version \d+, and|damaged"):
            KeyPair.from_bytes(bytes(damaged), PASSPHRASE, simulation=True)


def test_any_truncation_shows(sealed: bytes) -> None:
    for length in range(len(sealed)):
        with pytest.raises(KeyFileError, match=r"no key pair$|of version none|damaged"):
            KeyPair.from_bytes(sealed[:length], PASSPHRASE, simulation=True)
    with pytest.raises(KeyFileError, match="damaged"):
        KeyPair.from_bytes(sealed + b"\x00", PASSPHRASE, simulation=True)


@pytest.mark.parametrize("place", ["salt", "nonce", "ciphertext"])
def test_tampering_that_makes_the_digest_anew_is_still_refused(sealed: bytes, place: str) -> None:
    start = {
        "salt": len(sealing.KEY_PAIR.head),
        "nonce": len(sealing.KEY_PAIR.head) + 16,
        "ciphertext": len(sealing.KEY_PAIR.head) + 28,
    }[place]
    tampered = bytearray(sealed[:-32])
    tampered[start] ^= 1
    with pytest.raises(KeyFileError):
        KeyPair.from_bytes(_digested(bytes(tampered)), PASSPHRASE, simulation=True)


def test_a_short_file_with_a_right_digest_is_still_refused() -> None:
    for length in (0, 5, 16, 28):
        with pytest.raises(KeyFileError):
            KeyPair.from_bytes(_digested(sealing.KEY_PAIR.head + bytes(length)), PASSPHRASE, simulation=True)


def test_a_newer_version_is_named(sealed: bytes) -> None:
    newer = bytearray(sealed[:-32])
    newer[len(sealing.KEY_PAIR.format)] = 2
    with pytest.raises(KeyFileError, match="is of version 2, and this Reticent reads version 1"):
        KeyPair.from_bytes(_digested(bytes(newer)), PASSPHRASE, simulation=True)


@pytest.mark.parametrize("foreign", [b"", b"{}", b"-----BEGIN PRIVATE KEY-----", bytes(1000)])
def test_foreign_bytes(foreign: bytes) -> None:
    with pytest.raises(KeyFileError, match="this is no key pair"):
        KeyPair.from_bytes(foreign, PASSPHRASE)


@pytest.mark.parametrize("content", [b"", b"ab", bytes(3 * 128), b"\x01" * 3 * 128])
def test_sealed_content_that_is_no_key_pair(content: bytes) -> None:
    with pytest.raises(KeyFileError, match="does not hold"):
        KeyPair.from_bytes(sealing.sealed(content, PASSPHRASE), PASSPHRASE, simulation=True)


def test_simulation_has_to_be_asked_for(sealed: bytes) -> None:
    with pytest.raises(ValueError, match="n must have 3072 or 4096 bits: got 1024"):
        KeyPair.from_bytes(sealed, PASSPHRASE)


def test_an_empty_passphrase_seals_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the passphrase must not be empty"):
        pair().save(tmp_path / "key", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [b"bytes", None, 5, "a lone \udc80"])
def test_a_passphrase_is_text_and_stays_out_of_errors(sealed: bytes, wrong: Any) -> None:
    for call in (pair().to_bytes, lambda passphrase: KeyPair.from_bytes(sealed, passphrase, simulation=True)):
        with pytest.raises(ValueError, match="the passphrase must ") as refusal:
            call(wrong)
        assert type(refusal.value) is ValueError  # a UnicodeEncodeError would hold the passphrase
        assert refusal.value.__context__ is None
        assert "udc80" not in str(refusal.value)


def test_a_passphrase_is_the_same_however_its_letters_are_composed() -> None:
    """A Mac may give é as two characters, where others give one."""
    data = pair().to_bytes("caf\u00e9")
    assert KeyPair.from_bytes(data, "cafe\u0301", simulation=True).public == pair().public


def test_the_seal_is_scrypt_and_aes_gcm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened here by hand, with the standard library's scrypt, at its real cost."""
    for name, cost in SCRYPT_COST.items():
        monkeypatch.setitem(sealing.SCRYPT_COST, name, cost)
    sealed = pair().to_bytes(PASSPHRASE)
    head = len(sealing.KEY_PAIR.head) + 28
    salt, nonce = sealed[len(sealing.KEY_PAIR.head) : head - 12], sealed[head - 12 : head]
    key = hashlib.scrypt(PASSPHRASE.encode(), salt=salt, n=2**17, r=8, p=1, maxmem=2**28, dklen=32)
    content = AESGCM(key).decrypt(nonce, sealed[head:-32], sealed[:head])
    found = [int.from_bytes(content[start : start + 128], "big") for start in (0, 128, 256)]
    assert found == [*primes(pair()), pair().public.base]
    assert KeyPair.from_bytes(sealed, PASSPHRASE, simulation=True).public == pair().public


class TestFiles:
    def test_are_for_their_owner_only_and_come_back(self, tmp_path: Path) -> None:
        path = tmp_path / "key"
        before = os.umask(0)
        try:
            pair().save(path, PASSPHRASE)
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert KeyPair.load(path, PASSPHRASE, simulation=True).public == pair().public
        assert list(tmp_path.iterdir()) == [path]

    def test_are_never_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "key"
        path.write_bytes(b"the only copy of another key")
        with pytest.raises(FileExistsError, match=str(path)):
            pair().save(path, PASSPHRASE)
        assert path.read_bytes() == b"the only copy of another key"
        assert list(tmp_path.iterdir()) == [path]

    def test_are_whole_or_not_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device: .*key") as refusal:
            pair().save(tmp_path / "key", PASSPHRASE)
        assert "tmp" not in Path(str(refusal.value.filename)).name
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
    def test_are_as_good_without_hard_links(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        """Memory cards and some network drives know none."""
        path = tmp_path / "key"
        monkeypatch.setattr(os, "link", _refusal(number))
        pair().save(path, PASSPHRASE)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert KeyPair.load(path, PASSPHRASE, simulation=True).public == pair().public
        before = path.read_bytes()
        with pytest.raises(FileExistsError, match=str(path)):
            pair().save(path, PASSPHRASE)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize("links", [True, False])
    def test_leave_nothing_where_they_cannot_be_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
    ) -> None:
        monkeypatch.setattr(os, "link", _refusal(errno.EIO if links else errno.EPERM))
        monkeypatch.setattr(os, "replace", _refusal(errno.EIO))
        monkeypatch.setattr(Path, "replace", _refusal(errno.EIO))
        with pytest.raises(OSError, match=r"Input/output error: .*key"):
            pair().save(tmp_path / "key", PASSPHRASE)
        assert list(tmp_path.iterdir()) == []

    def test_leave_nothing_where_the_folder_cannot_be_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(OSError, match=r"Input/output error: .*key"):
            pair().save(tmp_path / "key", PASSPHRASE)
        assert list(tmp_path.iterdir()) == []

    def test_are_saved_by_one_of_several_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "link", _refusal(errno.EPERM))
        path = tmp_path / "key"

        def save(content: bytes) -> bytes | None:
            with contextlib.suppress(FileExistsError):
                create(path, content)
                return content
            return None

        for _ in range(20):
            with ThreadPoolExecutor(8) as pool:
                saved = [each for each in pool.map(save, [bytes([number]) * 100 for number in range(8)]) if each]
            assert saved == [path.read_bytes()]
            path.unlink()

    def test_in_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="missing/key"):
            pair().save(tmp_path / "missing" / "key", PASSPHRASE)


def test_the_public_key_of_a_pair_is_what_phones_accept() -> None:
    public = pair(3072).public
    assert PublicKey.from_bytes(public.to_bytes()) == public


def _refusal(number: int) -> Callable[..., None]:
    def refuse(*_args: object, **_options: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def _digested(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()
