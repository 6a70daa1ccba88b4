"""The queries of the aggregation server, until phones are asked: written down, countersigned, dealt to phones."""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from reticent.paillier import PublicKey
from reticent.privacy import Query
from reticent.protocol import Refusal, Refused, plaintext_count, signed_by
from reticent.protocol import statements as said
from reticent.protocol.keys import KEY_BYTES, PHONE_BYTES
from reticent.protocol.layout import MAX_CONTRIBUTION_BYTES, ciphertexts_to, contribution_bytes
from reticent.protocol.phases import KEY_SERVER_AWAY
from reticent.storage.database import Database, Execute
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_agg.errors import BadAnswer

__all__ = ["Asked", "Queries"]

_log = logging.getLogger(__name__)

LONGEST = dt.timedelta(days=366)
"""The longest that a query may collect."""
_REMEMBERED = 256  # queries, and keys, that are not read anew for each batch

Name = TypeVar("Name")
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Asked:
    """What never changes about a query.

    Args:
        query: What is asked.
        key: Under which contributions are encrypted.
        plaintexts: How many ciphertexts each has.
    """

    query: Query
    key: PublicKey
    plaintexts: int

    @property
    def ciphertexts_bytes(self) -> int:
        """How long the ciphertexts of a contribution are."""
        return self.plaintexts * self.key.ciphertext_bytes


class Queries:
    """What was announced, and the keys that it names.

    Args:
        database: The aggregation server's.
        identity: The key server's public Ed25519 key.
        now: The time, in UTC.
        simulation: Accept keys that are only good for simulation as well.
    """

    def __init__(self, database: Database, identity: bytes, now: Now, *, simulation: bool) -> None:
        self._database = database
        self._identity = identity
        self._now = now
        self._simulation = simulation
        self._terms: wire.Terms | None = None
        self._asked: OrderedDict[bytes, Asked] = OrderedDict()
        self._keys: OrderedDict[bytes, PublicKey] = OrderedDict()

    def learned(self, terms: wire.Terms) -> None:
        """Take in what the key server says about who could be asked now, and under which key."""
        try:
            key = PublicKey.from_bytes(terms.public_key, simulation=self._simulation)
        except ValueError as error:
            raise BadAnswer(f"the key server's public key is none: {error}") from error
        with self._database.transaction() as run:
            run("INSERT OR IGNORE INTO keys VALUES (?, ?)", (key.key_id, key.to_bytes()))
        _remember(self._keys, key.key_id, key)
        self._terms = terms

    def can_judge(self, query: Query) -> bool:
        """Whether what is known here answers its announcement.

        It was made before, or its key and its phones are among what the key server has said last.
        """
        with self._database.reading() as run:
            known = run("SELECT 1 FROM queries WHERE digest = ? AND refusal IS NULL", (query.digest,)).fetchone()
            if known is not None:
                return True
            there = self._key(run, query.key_id) is not None
        return there and self._terms is not None and query.population <= self._terms.population

    def announce(self, content: bytes, owner: str | None = None) -> Query:
        """Write a query down, so that it will be countersigned. The same one again changes nothing.

        Args:
            content: The query's canonical bytes.
            owner: The name of the analyst whose query it is; None where analysts have no names.

        Raises:
            Refused: It is none, or its id is that of another one, or it names a key that is not known, or more phones
                than are enrolled.
        """
        query = _read(content)
        with self._database.transaction() as run:
            known = run("SELECT digest, owner, refusal, phase FROM queries WHERE id = ?", (query.id,)).fetchone()
            if known is not None and (known[2] is None or known[3] != wire.ANNOUNCED):
                if known[:2] != (query.digest, owner):
                    raise Refused(Refusal.CONFLICT, f"there is another query of the name {query.id!r}")
                return query
            if known is not None and known[1] != owner:
                raise Refused(Refusal.CONFLICT, f"another analyst's query has the name {query.id!r}, and was refused")
            self._refuse_too_many(query)
            run("DELETE FROM queries WHERE id = ?", (query.id,))  # the key server would not have that one
            key = self._key(run, query.key_id)
            if key is None:
                raise Refused(Refusal.KEY_RETIRED)
            run(
                "INSERT INTO queries (digest, id, content, plaintexts, phase, announced, owner)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    query.digest,
                    query.id,
                    content,
                    _plaintexts(query, key),
                    wire.ANNOUNCED,
                    milliseconds(self._now()),
                    owner,
                ),
            )
        return query

    def uncountersigned(self) -> list[Query]:
        """What the key server must be asked to countersign, in the order of the announcements.

        What was written down when the checks were less strict, and is no query any more, is refused.
        """
        with self._database.reading() as run:
            found = run(
                "SELECT digest, id, content FROM queries WHERE phase = ? AND refusal IS NULL ORDER BY number",
                (wire.ANNOUNCED,),
            ).fetchall()
        queries = (self._still(*row) for row in found)
        return [query for query in queries if query is not None]

    def countersigned(self, run: Execute, query: Query, deals: Iterable[wire.Deal]) -> bool:
        """Begin to collect, from the phones to which the key server has dealt the query; False if that was before.

        Raises:
            BadAnswer: The countersignature is wrong, or these are not the phones of the query.
        """
        head, phones = self._checked(query, deals)
        known = run("SELECT number, phase FROM queries WHERE digest = ?", (query.digest,)).fetchone()
        if known is None or known[1] != wire.ANNOUNCED:
            return False
        number, now = known[0], milliseconds(self._now())
        run(
            "UPDATE queries SET agreement_key = ?, countersignature = ?, phase = ?, closes = ?, refusal = NULL"
            " WHERE number = ?",
            (head.agreement_key, head.countersignature, wire.COLLECTING, now + query.closes_after * 1000, number),
        )
        for phone in sorted(phones, key=lambda each: each.phone):
            run("INSERT INTO dealt VALUES (?, ?, ?, ?)", (number, phone.phone, phone.verify_key, phone.cohort))
        asked = self.asked(run, query.digest)
        nothing = ciphertexts_to([1] * asked.plaintexts, asked.key)  # 1 is a ciphertext of 0
        for cohort, population in enumerate(query.cohort_populations):
            run("INSERT INTO sums VALUES (?, ?, ?, 0, ?)", (number, cohort, query.enough or population, nothing))
        return True

    def refused(self, query: Query, refused: Refused) -> None:
        """The key server will not countersign a query: whoever announces it, or asks after it, is told why."""
        self._refuse(query.digest, refused)

    def asked(self, run: Execute, digest: bytes) -> Asked:
        """What never changes about a query.

        Raises:
            Refused: There is no such query.
        """
        found = self._asked.get(digest)
        if found is None:
            row = run("SELECT content, plaintexts FROM queries WHERE digest = ?", (digest,)).fetchone()
            if row is None:
                raise Refused(Refusal.UNKNOWN_QUERY)
            query = Query.from_bytes(row[0])
            key = self._key(run, query.key_id)
            if key is None:
                raise AssertionError(f"the key of {query.id!r} was known when it was announced")
            found = Asked(query, key, row[1])
            _remember(self._asked, digest, found)
        return found

    def key(self, key_id: bytes) -> PublicKey:
        """A public key that some query may name.

        Raises:
            Refused: It is not known.
        """
        found = self._keys.get(key_id)
        if found is None:
            with self._database.reading() as run:
                found = self._key(run, key_id.hex())
        if found is None:
            raise Refused(Refusal.KEY_RETIRED, "there is no such key")
        return found

    def _still(self, digest: bytes, query_id: str, content: bytes) -> Query | None:
        """A query that was written down; None where it is none any more, and is refused now."""
        try:
            return Query.from_bytes(content)
        except ValueError as error:
            _log.warning("%r cannot be asked any more: %s", query_id, error)
            self._refuse(digest, Refused(Refusal.BAD_QUERY, str(error)))
            return None

    def _refuse(self, digest: bytes, refused: Refused) -> None:
        with self._database.transaction() as run:
            run(
                "UPDATE queries SET refusal = ?, detail = ? WHERE digest = ? AND phase = ?",
                (refused.refusal.name, refused.detail, digest, wire.ANNOUNCED),
            )

    def _refuse_too_many(self, query: Query) -> None:
        """Before anything is made for a query: nothing it asks for may be larger than what there is."""
        if self._terms is None:
            raise Refused(Refusal.UNAVAILABLE, KEY_SERVER_AWAY)
        enrolled = self._terms.population
        if query.population > enrolled:
            raise Refused(Refusal.NOT_ENROLLED_ENOUGH, f"{enrolled} phones are enrolled, of {query.population}")

    def _key(self, run: Execute, key_id: str) -> PublicKey | None:
        try:
            name = bytes.fromhex(key_id)
        except ValueError:
            return None
        found = self._keys.get(name)
        if found is None:
            row = run("SELECT content FROM keys WHERE id = ?", (name,)).fetchone()
            if row is None:
                return None
            found = PublicKey.from_bytes(row[0], simulation=self._simulation)
            _remember(self._keys, name, found)
        return found

    def _checked(self, query: Query, deals: Iterable[wire.Deal]) -> tuple[wire.Deal, Sequence[wire.Dealt]]:
        """The message with the countersignature, and all phones."""
        phones: list[wire.Dealt] = []
        head = wire.Deal()
        for deal in deals:
            head = head if head.countersignature else deal
            phones.extend(deal.phones)
        statement = said.countersigned(query.digest, head.agreement_key)
        if len(head.agreement_key) != KEY_BYTES or not signed_by(self._identity, statement, head.countersignature):
            raise BadAnswer(f"{query.id!r} is not countersigned by the key server's identity")
        if len({each.phone for each in phones}) < len(phones) or not all(map(_is_dealt, phones)):
            raise BadAnswer(f"{query.id!r} was dealt to phones of which some are repeated, or none")
        sizes = Counter(each.cohort for each in phones)
        if sizes != dict(enumerate(query.cohort_populations)):
            raise BadAnswer(f"{query.id!r} was not dealt to as many phones as it asks for: got {sorted(sizes.items())}")
        return head, phones


def _is_dealt(dealt: wire.Dealt) -> bool:
    return len(dealt.phone) == PHONE_BYTES and len(dealt.verify_key) == KEY_BYTES


def _read(content: bytes) -> Query:
    try:
        query = Query.from_bytes(content)
    except ValueError as error:
        raise Refused(Refusal.BAD_QUERY, str(error)) from error
    if query.closes_after > LONGEST.total_seconds():
        raise Refused(Refusal.BAD_QUERY, f"a query collects for {LONGEST.days} days at most")
    return query


def _plaintexts(query: Query, key: PublicKey) -> int:
    """How many ciphertexts a contribution has.

    Raises:
        Refused: They do not fit a message, or a counter does not fit a plaintext.
    """
    try:
        plaintexts = plaintext_count(query, key.bits)
    except ValueError as error:
        raise Refused(Refusal.BAD_QUERY, str(error)) from error
    if contribution_bytes(query, key.bits) > MAX_CONTRIBUTION_BYTES:
        raise Refused(Refusal.BAD_QUERY, f"a contribution of {plaintexts} ciphertexts does not fit a message")
    return plaintexts


def _remember(things: OrderedDict[Name, Thing], name: Name, thing: Thing) -> None:
    things[name] = thing
    if len(things) > _REMEMBERED:
        things.popitem(last=False)
