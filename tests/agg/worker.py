"""A process of its own that has contributions taken in, and says which are acknowledged: to be killed, or to race."""

from __future__ import annotations

import random
import sys
from contextlib import closing, nullcontext
from pathlib import Path

from reticent.protocol import Refused
from reticent.randomness import secure
from reticent.v1 import counting_pb2 as wire
from reticent_agg import AggregationServer, SqlStore
from tests.parties import aggregation


def main(folder: Path, seed: int, most: int, database: str | None, *, claims: bool) -> None:
    """When told to, send the messages of a folder in an order of this process's own, some twice; wait to be killed."""
    store = SqlStore(folder / "aggregation.db" if database is None else database)
    chance = random.Random(seed)  # noqa: S311  # an order
    server = AggregationServer(
        store,
        identity=aggregation.KeyServer.identity.public,
        now=aggregation.Time(),
        rng=secure(),
        simulation=True,
    )
    with closing(server), store.serving() if claims else nullcontext():
        places = list(range(len(list(folder.glob("*.message")))))
        messages = {place: wire.Contribution.FromString((folder / f"{place}.message").read_bytes()) for place in places}
        chance.shuffle(places)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        while places:
            batch = [places.pop() for _ in range(min(len(places), chance.randint(1, most)))]
            batch += chance.choices(batch, k=2)
            for place, outcome in zip(
                batch, server.collection.contribute([messages[each] for each in batch]), strict=True
            ):
                result = outcome.refusal.name if isinstance(outcome, Refused) else outcome.contribution.hex()
                sys.stdout.write(f"{place} {result}\n")
            sys.stdout.flush()
        sys.stdout.write("done\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    rest = sys.argv[4:]
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), rest[0] if rest else None, claims=len(rest) == 1)
