"""Values generalise along a path in which every level determines the next."""

from decimal import ROUND_DOWN, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.hierarchy import Decimals, Tree, UnknownCategory

LOCATION = Decimals("location")


def coordinates(bound: int) -> st.SearchStrategy[str]:
    """Texts of coordinates, with signs, without decimals, with a point only."""
    decimals = st.one_of(st.just(""), st.text("0123456789", max_size=7).map(".".__add__))
    return st.builds("{}{}{}".format, st.sampled_from(["", "-"]), st.integers(0, bound - 1), decimals)


@given(north=coordinates(90), east=coordinates(180))
def test_places_lose_decimals_by_truncation(north: str, east: str) -> None:
    for kept, text in zip((4, 3, 2, 1, 0), LOCATION.path(f"{north},{east}")[1:], strict=True):
        for coordinate, number in zip((north, east), text.split(","), strict=True):
            expected = Decimal(coordinate).quantize(Decimal(1).scaleb(-kept), ROUND_DOWN)
            assert number == str(abs(expected) if expected == 0 else expected)


@given(north=coordinates(90), east=coordinates(180), level=st.integers(0, 5))
def test_generalising_a_place_in_two_steps_is_generalising_it_at_once(north: str, east: str, level: int) -> None:
    path = LOCATION.path(f"{north},{east}")
    assert LOCATION.path(path[level])[level:] == path[level:]


@pytest.mark.parametrize(
    ("value", "exact", "no_decimals"),
    [
        ("-0.04,-0.0", "-0.04,0.0", "0,0"),
        ("5,-5.", "5,-5", "5,-5"),
        ("007.5,0", "7.5,0", "7,0"),
        ("-90.0,180", "-90.0,180", "-90,180"),
    ],
)
def test_awkward_places(value: str, exact: str, no_decimals: str) -> None:
    assert LOCATION.path(value)[0] == exact
    assert LOCATION.path(value)[-1] == no_decimals


@pytest.mark.parametrize(
    "value",
    [
        "",
        "40.7",
        "40.7 -73.9",
        "40.7,",
        ",1",
        "1,2,3",
        "nan,0",
        "inf,0",
        "1e1,0",
        "+1,0",
        ".5,0",
        "1, 2",
        "٣,0",
        "1,2\n",
        "--1,0",
    ],
)
def test_malformed_places_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="'location' needs a latitude and a longitude") as error:
        LOCATION.path(value)
    assert repr(value) in str(error.value)


@pytest.mark.parametrize(
    ("value", "title"),
    [("90.00001,0", "latitude"), ("-91,0", "latitude"), ("0,180.1", "longitude"), ("0,999", "longitude")],
)
def test_places_off_the_globe_are_refused(value: str, title: str) -> None:
    with pytest.raises(ValueError, match=f"a {title} lies in"):
        LOCATION.path(value)


@pytest.mark.parametrize(
    "keep", [(), (4, 3), (None, 3, 4), (None, 3, 3), (None, -1), (None, 1.5), (None, None), (None, 10**9)]
)
def test_decimals_that_do_not_decrease_are_refused(keep: tuple[int | None, ...]) -> None:
    with pytest.raises(ValueError, match="'place'"):
        Decimals("place", keep)


TREE = Tree("query", 4, {"a1": "a", "a2": "a", "b1": "b", "a": "top", "b": "top", "deep": "a1", "alone": None})


@given(categories=st.sets(st.sampled_from(sorted(TREE.parents)), min_size=1, max_size=4), data=st.data())
def test_categories_generalise_one_by_one_to_their_ancestors(categories: set[str], data: st.DataObject) -> None:
    path = TREE.path("+".join(data.draw(st.permutations(sorted(categories)))))
    assert len(path) == TREE.levels
    for level, value in enumerate(path):
        assert value == "+".join(sorted(categories))
        assert TREE.path(value)[1] == path[min(level + 1, 3)]
        categories = {TREE.parents[category] or category for category in categories}


def test_a_tree_knows_its_categories_only() -> None:
    with pytest.raises(UnknownCategory, match="'query' has no category 'c'"):
        TREE.path("a+c")


@pytest.mark.parametrize("value", ["", "+", "a+", "a++b", "a|b", "a\x00", "x" * 1001, "\ud800"])
def test_malformed_categories_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="'query'") as error:
        TREE.path(value)
    assert error.type is ValueError


@pytest.mark.parametrize(
    ("levels", "parents", "message"),
    [
        (3, {"a": "b", "b": "a"}, "'q' has a cycle: 'a' is an ancestor of itself"),
        (3, {"a": "a"}, "'q' has a cycle"),
        (9, {"x": "a", "a": "b", "b": "a"}, "'q' has a cycle"),
        (2, {"a": "b", "b": "c"}, "'q' has 2 levels: 'a' has 2 ancestors or more"),
        (10**9, {"a": "b"}, "'q' has at most 100 levels: got 1000000000"),
        (0, {}, "the levels of 'q' must be at least 1"),
        (2, {"a+b": "c"}, r"a category of 'q' must not contain '\+'"),
        (2, {"a": "b|c"}, r"a category of 'q' must not contain '\|'"),
        (2, {"a\n": "b"}, r"a category of 'q' must not contain '\\n'"),
        (2, {"a": ""}, "a category of 'q' must be text that is not empty"),
        (2, {"a": 3}, "a category of 'q' must be text"),
        (2, ["a"], "the parents of 'q' map categories to categories"),
    ],
)
def test_bad_trees_are_refused(levels: int, parents: dict[str, str | None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tree("q", levels, parents)
