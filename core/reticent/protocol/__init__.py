"""What phones and the two servers say and sign when phones are counted.

The messages themselves are in `reticent.v1.counting_pb2`; docs/protocol.md tells the whole story.
"""

from reticent.protocol.keys import AgreementKey, SigningKey, shared_secret, signed_by
from reticent.protocol.layout import packing_of, plaintext_count
from reticent.protocol.refusals import Refusal, Refused, Unreachable

__all__ = [
    "AgreementKey",
    "Refusal",
    "Refused",
    "SigningKey",
    "Unreachable",
    "packing_of",
    "plaintext_count",
    "shared_secret",
    "signed_by",
]
