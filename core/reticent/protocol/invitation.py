"""An invitation: the servers' addresses, their certificates' authority, and a token for one phone."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from reticent.protocol.keys import KEY_BYTES
from reticent.storage.documents import DocumentFormat

__all__ = ["RENEWED_AT", "TOKEN_BYTES", "Invitation"]

FORMAT = DocumentFormat("reticent-invitation", 1, "an invitation")
TOKEN_BYTES = 16
RENEWED_AT = 3
"""A phone renews its membership when less than one part in so many is left of it."""


@dataclass(frozen=True)
class Invitation:
    """An invitation for one phone. Any holder can join with it: hand it over in private.

    Args:
        token: The secret, 16 bytes.
        identity: The key server's public Ed25519 key.
        authority: The certificate of the servers' authority, in PEM.
        key_server: The key server's address for phones, as host:port.
        aggregation_server: The aggregation server's address for phones.
    """

    token: bytes
    identity: bytes
    authority: str
    key_server: str
    aggregation_server: str

    def __post_init__(self) -> None:
        for name in ("authority", "key_server", "aggregation_server"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be text: got {getattr(self, name)!r}")
        if len(self.token) != TOKEN_BYTES or len(self.identity) != KEY_BYTES:
            raise ValueError(
                f"an invitation has a token of {TOKEN_BYTES} bytes and an identity of {KEY_BYTES}: "
                f"got {len(self.token)} and {len(self.identity)}"
            )

    def to_text(self) -> str:
        """The invitation as JSON, from which `from_text` makes an equal one."""
        content = vars(self) | {"token": _text(self.token), "identity": _text(self.identity)}
        return FORMAT.text(content, indent=2) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Invitation:
        """The invitation that `to_text` wrote.

        Raises:
            ValueError: The text is not an invitation of this version.
        """
        content = FORMAT.parse(text)
        try:
            for name in ("token", "identity"):
                content[name] = base64.b64decode(content[name], validate=True)
            return cls(**content)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"the invitation is damaged: {error}") from error

    def __repr__(self) -> str:
        return f"Invitation({self.key_server}, {self.aggregation_server}, …)"


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
