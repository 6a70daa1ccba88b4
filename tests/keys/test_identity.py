from pathlib import Path

import pytest

from reticent_keys import Identity, KeyFileError, WrongPassphrase, sealing
from tests.parties.key_pairs import pair
from tests.parties.key_server import PASSPHRASE


def test_an_identity_is_the_same_after_it_was_saved(tmp_path: Path) -> None:
    identity = Identity()
    identity.save(tmp_path / "identity", PASSPHRASE)
    loaded = Identity.load(tmp_path / "identity", PASSPHRASE)
    assert loaded.public == identity.public
    assert loaded.storage_key() == identity.storage_key()
    assert loaded.signing.sign(b"a statement") == identity.signing.sign(b"a statement")
    assert (tmp_path / "identity").stat().st_mode & 0o777 == 0o600


def test_two_identities_differ_and_no_two_keys_of_one_are_the_same() -> None:
    secrets = {key for _ in range(2) for each in [Identity()] for key in (each.signing.to_bytes(), each.storage_key())}
    assert len(secrets) == 4


def test_no_identity_is_overwritten(tmp_path: Path) -> None:
    Identity().save(tmp_path / "identity", PASSPHRASE)
    with pytest.raises(FileExistsError):
        Identity().save(tmp_path / "identity", PASSPHRASE)


def test_what_is_no_identity_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    Identity().save(path, PASSPHRASE)
    with pytest.raises(WrongPassphrase, match="this identity was sealed with"):
        Identity.load(path, "another")
    damaged = bytearray(path.read_bytes())
    damaged[-50] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(KeyFileError, match="this identity is damaged"):
        Identity.load(path, PASSPHRASE)
    path.write_bytes(pair(1024).to_bytes(PASSPHRASE))
    with pytest.raises(KeyFileError, match="this is no identity"):
        Identity.load(path, PASSPHRASE)
    path.write_bytes(sealing.sealed(bytes(31), PASSPHRASE, sealing.IDENTITY))
    with pytest.raises(KeyFileError, match="does not hold an identity"):
        Identity.load(path, PASSPHRASE)


def test_an_identity_prints_no_secret() -> None:
    identity = Identity()
    for secret in (identity.signing.to_bytes(), identity.storage_key()):
        assert secret.hex() not in repr(identity) + repr(vars(identity))
