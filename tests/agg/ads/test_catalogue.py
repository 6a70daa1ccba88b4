"""The catalogue: what a file must hold, and which bid counts where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reticent.hierarchy import Hierarchy, Node, Tree
from reticent_agg.ads.catalogue import AdBids, Catalogue
from tests.agg.ads.worlds import EXAMPLE, HIERARCHY, PARENTS, Line, World

HEADER = "ad,payment,category,text,cap,contexts\n"
GOOD = "tea,1.5,cafe,Tea,3,\n"


def loaded(path: Path, text: str | bytes) -> Catalogue:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Catalogue.load(path, HIERARCHY)


def test_a_catalogue_holds_what_its_file_says(tmp_path: Path) -> None:
    found = loaded(
        tmp_path / "catalogue.csv",
        "\ufeff"
        + HEADER
        + GOOD
        + '"a ""b"", c",1,restaurant,"Zwei, drei",,"2|40.7,-73.9|cafe=4;2|51.5,-0.1|cafe"\r\n\n',
    )
    assert found.ads == ("tea", 'a "b", c')
    assert (found.categories, found.texts, found.caps) == (("cafe", "restaurant"), ("Tea", "Zwei, drei"), (3, 0))
    assert found.payments.tolist() == [1.5, 0]
    assert found.bids == {1: ((1, 4.0), (3, 1.0))}


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("", 1, "the header must be ad,payment,category,text,cap,contexts: got ''"),
        ("ad,payment\n", 1, "got 'ad,payment'"),
        (HEADER, 1, "the catalogue has no ads"),
        (HEADER + "tea,1,cafe,Tea,3\n", 2, "an ad has 6 columns: got 5"),
        (HEADER + GOOD + GOOD, 3, "the ad 'tea' is already in the catalogue"),
        (HEADER + GOOD + ",1,cafe,Tea,3,\n", 3, "the ad must be text that is not empty: got ''"),
        (HEADER + "a\x07b,1,cafe,Tea,3,\n", 2, "the ad must not contain '\\x07'"),
        (HEADER + f"{'ü' * 33},1,cafe,Tea,3,\n", 2, "the ad must have at most 64 bytes of UTF-8: got 66"),
        (HEADER + f"tea,1,{'x' * 65},Tea,3,\n", 2, "the category must have at most 64 bytes"),
        (HEADER + "tea,1,,Tea,3,\n", 2, "the category must be text"),
        (HEADER + f"tea,1,cafe,{'x' * 257},3,\n", 2, "the text must have at most 256 bytes of UTF-8: got 257"),
        (HEADER + 'tea,1,cafe,"two\nlines",3,\n', 3, "the text must not contain '\\n'"),
        (HEADER + "tea,0,cafe,Tea,3,\n", 2, "a payment is a number from 1e-09 to 1e+09: got '0'"),
        (HEADER + "tea,-1,cafe,Tea,3,\n", 2, "got '-1'"),
        (HEADER + "tea,nan,cafe,Tea,3,\n", 2, "got 'nan'"),
        (HEADER + "tea,inf,cafe,Tea,3,\n", 2, "got 'inf'"),
        (HEADER + "tea,1e999,cafe,Tea,3,\n", 2, "got '1e999'"),
        (HEADER + "tea,1_0,cafe,Tea,3,\n", 2, "got '1_0'"),
        (HEADER + "tea,,cafe,Tea,3,\n", 2, "got ''"),
        (HEADER + "tea,1,cafe,Tea,-1,\n", 2, "cap must be a whole number from 0 to 1,000,000: got '-1'"),
        (HEADER + "tea,1,cafe,Tea,1000001,\n", 2, "got '1000001'"),
        (HEADER + "tea,1,cafe,Tea,²,\n", 2, "got '²'"),
        (HEADER + "tea,1,cafe,Tea,3,cafe\n", 2, "the hierarchy has no node 'cafe'"),
        (HEADER + GOOD + "milk,1,cafe+drinks,Milk,3,\n", 3, "the hierarchy has no category 'drinks'"),
        (HEADER + "tea,1,cafe,Tea,3,3=\n", 2, "a payment is a number from 1e-09 to 1e+09: got ''"),
        (HEADER + "tea,1,cafe,Tea,3,3=0\n", 2, "got '0'"),
        (HEADER + "tea,1,cafe,Tea,3,3;9|no|way\n", 2, "no node '9|no|way'"),
        (HEADER + "tea,1,cafe,Tea,3,3;3=2\n", 2, "the node '3=2' is there twice"),
        (HEADER + 'tea,1,cafe,"Tea,3,\n', 2, "unexpected end of data"),
        (HEADER.encode() + b"tea,1,cafe,T\xffa,3,\n", 2, "the text is not UTF-8"),
    ],
)
def test_a_bad_catalogue_is_refused_with_its_file_and_line(
    tmp_path: Path, text: str | bytes, line: int, sentence: str
) -> None:
    path = tmp_path / "catalogue.csv"
    with pytest.raises(ValueError, match=r"catalogue\.csv") as caught:
        loaded(path, text)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert sentence in str(caught.value)


def test_a_node_whose_query_has_an_equals_sign_is_found(tmp_path: Path) -> None:
    """Users type anything; a payment comes after the last one."""
    hierarchy = Hierarchy([Tree("query", 1, {"a=1": None, "a": None})], [("a=1",), ("a",)], [(0,)])
    path = tmp_path / "catalogue.csv"
    path.write_text(HEADER + "tea,2,a,Tea,3,0|a=1\nmilk,2,a+a=1,Milk,3,0|a=1=1;0|a=3\n")
    one, other = (hierarchy.index(Node(0, (value,))) for value in ("a=1", "a"))
    assert Catalogue.load(path, hierarchy).bids == {0: ((one, 2.0),), 1: ((one, 1.0), (other, 3.0))}


def test_the_most_specific_bid_counts_at_every_node(tmp_path: Path) -> None:
    bids: list[dict[int, float | None]] = [{}, {0: None}, {1: 4.0, 0: None}, {1: None}, {len(PARENTS) - 1: 8.0, 3: 2.0}]
    lines = [Line(f"ad{number}", 1.0, each) for number, each in enumerate(bids)]
    world = World(lines, EXAMPLE.rates, EXAMPLE.frequency)
    found = AdBids.of(Catalogue.load(world.write(tmp_path)["catalogue"], HIERARCHY), HIERARCHY.parents)
    nodes = np.arange(len(PARENTS))
    for number, line in enumerate(lines):
        expected = [world.payment(line, node) for node in nodes.tolist()]
        assert found.at(np.full(len(nodes), number), nodes).tolist() == expected
