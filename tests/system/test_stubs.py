"""The wire stays what it was: programs that were built against an older proto go on working."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from reticent.v1 import ads_pb2, phone_pb2

FOLDER = Path(__file__).parents[1] / "vectors"
VECTORS = json.loads((FOLDER / "phone-wire.json").read_text(encoding="utf-8"))
SERVICES = {
    "Phone": (phone_pb2.DESCRIPTOR, VECTORS),
    "Ads": (ads_pb2.DESCRIPTOR, json.loads((FOLDER / "ads-wire.json").read_text(encoding="utf-8"))),
}
MESSAGES = [(name, message) for name, (_, vectors) in SERVICES.items() for message in vectors["fields"]]
TYPES = {
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_FIXED32: "fixed32",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "float",
}


def _type(field: FieldDescriptor) -> str:
    entry = field.message_type
    if entry is None:
        return TYPES[field.type]
    if not entry.GetOptions().map_entry:
        return str(entry.name)
    return f"map<{', '.join(TYPES[each.type] for each in entry.fields)}>"


@pytest.mark.parametrize("name", SERVICES)
def test_the_package_and_its_methods_keep_their_names(name: str) -> None:
    descriptor, vectors = SERVICES[name]
    service = descriptor.services_by_name[name]
    assert descriptor.package == vectors["package"]
    assert vectors["methods"] == {
        each.name: [each.input_type.name, each.output_type.name, each.server_streaming] for each in service.methods
    }
    assert not any(each.client_streaming for each in service.methods)


@pytest.mark.parametrize(("name", "message"), MESSAGES)
def test_no_field_ever_changes_its_number_or_its_type(name: str, message: str) -> None:
    """Fields may be added, and these never taken away."""
    descriptor, vectors = SERVICES[name]
    now = {field.name: [field.number, _type(field)] for field in descriptor.message_types_by_name[message].fields}
    assert now | vectors["fields"][message] == now
    numbers = [number for number, _ in now.values()]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("name", SERVICES)
def test_there_is_no_message_without_vectors(name: str) -> None:
    descriptor, vectors = SERVICES[name]
    assert set(descriptor.message_types_by_name) == set(vectors["fields"])


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
