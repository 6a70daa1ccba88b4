"""Keys under which anybody can sign are told from all others."""

from reticent.protocol import SigningKey
from reticent.protocol.keys import has_small_order

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)


def added(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The sum of two points of the curve -x² + y² = 1 + d x² y²."""
    (x, y), (u, v) = one, other
    product = D * x * u * y * v
    return (x * v + u * y) * pow(1 + product, -1, P) % P, (y * v + x * u) * pow(1 - product, -1, P) % P


def x_of(y: int) -> int | None:
    """One of the two x of a y, if it is of a point."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT_OF_MINUS_ONE % P
    return None if (x * x - square) % P else x


def of_small_order() -> set[int]:
    """The y of the points that eight times are nothing, found by multiplying others with the order of the group."""
    order = 2**252 + 27742317777372353535851937790883648493
    found = set()
    for y in range(2, 60):
        if (x := x_of(y)) is not None:
            point, total = (x, y), (0, 1)
            for bit in f"{order:b}":
                total = added(total, total)
                if bit == "1":
                    total = added(total, point)
            found.add(total[1])
    return found


def test_all_points_of_small_order_are_anybodys_in_all_their_forms() -> None:
    small = of_small_order()
    assert len(small) == 5  # of eight points: 0 and the two of order eight come with two x each
    for y in small:
        for form in (y, y + P):
            if form < 2**255:
                for sign in (0, 2**255):
                    assert has_small_order((form + sign).to_bytes(32, "little"))


def test_no_key_that_somebody_holds_has_small_order() -> None:
    assert not any(has_small_order(SigningKey().public) for _ in range(200))
    assert not has_small_order((2).to_bytes(32, "little"))
