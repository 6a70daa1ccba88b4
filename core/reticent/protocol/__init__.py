"""The protocol of private counting: signed statements, keys, layout of contributions, refusals.

The messages are in `reticent.v1.counting_pb2`; docs/protocol.md describes the protocol.
"""

from reticent.protocol._refusals import BadCertificate, Refusal, Refused, Remedy, Unreachable
from reticent.protocol.keys import AgreementKey, SigningKey, shared_secret, signed_by
from reticent.protocol.layout import packing_of, plaintext_count

__all__ = [
    "AgreementKey",
    "BadCertificate",
    "Refusal",
    "Refused",
    "Remedy",
    "SigningKey",
    "Unreachable",
    "packing_of",
    "plaintext_count",
    "shared_secret",
    "signed_by",
]
