"""By what phones know the key server: the key that it signs with, and the key by which it shares secrets."""

from __future__ import annotations

from pathlib import Path

from reticent.files import create
from reticent.protocol import AgreementKey, SigningKey
from reticent.protocol.secrets import KEY_BYTES
from reticent_keys import sealing
from reticent_keys.errors import KeyFileError

__all__ = ["Identity"]


class Identity:
    """The two keys of a key server, which it has for life; new ones unless they are given.

    Nothing that it prints tells them.

    Args:
        signing: Signs memberships, countersignatures and decisions.
        agreement: Shares a secret with each phone.
    """

    def __init__(self, signing: SigningKey | None = None, agreement: AgreementKey | None = None) -> None:
        self.signing = signing or SigningKey()
        self.agreement = agreement or AgreementKey()

    @property
    def public(self) -> bytes:
        """What invitations name: the public Ed25519 key."""
        return self.signing.public

    def save(self, path: str | Path, passphrase: str) -> None:
        """Write the identity, sealed, to a new file, readable by its owner only, whole or not at all.

        Raises:
            FileExistsError: There is a file of that name.
            ValueError: The passphrase is empty, or no text.
        """
        content = self.signing.to_bytes() + self.agreement.to_bytes()
        create(Path(path), sealing.sealed(content, passphrase, sealing.IDENTITY))

    @classmethod
    def load(cls, path: str | Path, passphrase: str) -> Identity:
        """The identity of a file that `save` wrote.

        Raises:
            WrongPassphrase: It was sealed with another one.
            KeyFileError: It is damaged, foreign or of a newer version.
        """
        content = sealing.opened(Path(path).read_bytes(), passphrase, sealing.IDENTITY)
        if len(content) != 2 * KEY_BYTES:
            raise KeyFileError("this does not hold an identity")
        return cls(SigningKey(content[:KEY_BYTES]), AgreementKey(content[KEY_BYTES:]))

    def __repr__(self) -> str:
        return f"Identity({self.public.hex()[:16]}…)"
