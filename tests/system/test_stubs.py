"""The wire stays what it was: apps that were built against an older phone.proto go on working."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from reticent.v1 import phone_pb2

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "phone-wire.json").read_text(encoding="utf-8"))
TYPES = {
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_DOUBLE: "double",
}


def _type(field: FieldDescriptor) -> str:
    entry = field.message_type
    if entry is None:
        return TYPES[field.type]
    return f"map<{', '.join(TYPES[each.type] for each in entry.fields)}>"


def test_the_package_and_its_methods_keep_their_names() -> None:
    service = phone_pb2.DESCRIPTOR.services_by_name["Phone"]
    assert phone_pb2.DESCRIPTOR.package == VECTORS["package"]
    assert VECTORS["methods"] == {
        each.name: [each.input_type.name, each.output_type.name, each.server_streaming] for each in service.methods
    }
    assert not any(each.client_streaming for each in service.methods)


@pytest.mark.parametrize("name", VECTORS["fields"])
def test_no_field_ever_changes_its_number_or_its_type(name: str) -> None:
    """Fields may be added, and these never taken away."""
    message = phone_pb2.DESCRIPTOR.message_types_by_name[name]
    now = {field.name: [field.number, _type(field)] for field in message.fields}
    assert now | VECTORS["fields"][name] == now
    numbers = [number for number, _ in now.values()]
    assert len(set(numbers)) == len(numbers)


def test_there_is_no_message_without_vectors() -> None:
    assert set(phone_pb2.DESCRIPTOR.message_types_by_name) == set(VECTORS["fields"])


@pytest.mark.parametrize("vector", VECTORS["requests"], ids=lambda vector: f"after {vector['after']}")
def test_requests_are_written_and_read_as_ever(vector: dict[str, Any]) -> None:
    request = phone_pb2.SubscribeRequest(after=vector["after"])
    assert request.SerializeToString().hex() == vector["message"]
    read = phone_pb2.SubscribeRequest.FromString(bytes.fromhex(vector["message"]))
    assert (read.after if read.HasField("after") else None) == vector["after"]


@pytest.mark.parametrize("vector", VECTORS["reports"], ids=lambda vector: str(vector["counters"]))
def test_reports_are_written_and_read_as_ever(vector: dict[str, Any]) -> None:
    request = phone_pb2.ReportRequest(counters=vector["counters"])
    assert request.SerializeToString(deterministic=True).hex() == vector["message"]
    assert dict(phone_pb2.ReportRequest.FromString(bytes.fromhex(vector["message"])).counters) == vector["counters"]
