"""A user's settings for ads: from TOML, with one sentence for each mistake, to the user's cut."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from reticent.hierarchy import Decimals, Hierarchy, Node
from reticent_client.ads.contexts import UserContexts
from reticent_client.ads.settings import AdSettings, read_settings
from tests.client.ads.world import HIERARCHY, LATTE, PLACES, QUERIES, settings_for
from tests.system.documents import ROOT

TOML = """
hierarchy = "hierarchy.json"
service = "ads.example.org:7443"
authority = "ca.crt"
apps = ["weather"]
sensitive = ["1|40.73,-74.03|jazz|cafe", ["40.71,-74.01", "jazz", "latte"]]
delta = 0.2
prior = "prior.csv"
ads = 20
interest = "jazz+wine"
max_per_day = 5
quiet = ["22:00-07:00"]
disliked_categories = ["food"]
disliked_ads = ["shoes"]
reply_after = 2

[places]
home = "40.71,-74.01"
"""


def test_a_toml_file_has_the_names_of_the_arguments(tmp_path: Path) -> None:
    (tmp_path / "ads.toml").write_text(TOML)
    assert read_settings(tmp_path / "ads.toml") == AdSettings(
        hierarchy=tmp_path / "hierarchy.json",
        service="ads.example.org:7443",
        authority=tmp_path / "ca.crt",
        apps=("weather",),
        sensitive=("1|40.73,-74.03|jazz|cafe", LATTE),
        delta=0.2,
        prior=tmp_path / "prior.csv",
        ads=20,
        places={"home": "40.71,-74.01"},
        interest="jazz+wine",
        max_per_day=5,
        quiet=((dt.time(22), dt.time(7)),),
        disliked_categories=("food",),
        disliked_ads=("shoes",),
        reply_after=2.0,
    )


def test_the_documentation_has_all_settings_with_their_defaults() -> None:
    page = (ROOT / "docs" / "apps.md").read_text(encoding="utf-8")
    section = page.partition("### All settings\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*)\| ", section, re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(each.name for each in fields(AdSettings))
    defaults = {each.name: each.default for each in fields(AdSettings)}
    numbers = {name: default for name, default in defaults.items() if type(default) in {bool, int, float}}
    shown = {name: json.loads(text) for name, text in rows if text.strip() == "false" or text.strip().isdigit()}
    assert shown == numbers


DELTA = 0.4
LEAST = 'hierarchy = "h.json"\nservice = "127.0.0.1:1"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nonsense", "these are no settings for ads: "),
        ("places = {}", "settings for ads name the hierarchy and the service"),
        (LEAST + "levle = 1", "got levle"),
        (LEAST, "either a level or a delta"),
        (LEAST + "level = 1\ndelta = 0.1", "either a level or a delta"),
        (LEAST + "level = 1\nprior = 'p.csv'", "at least one sensitive context"),
        (LEAST + "delta = 0.1", "at least one sensitive context"),
        (LEAST + "delta = 0", "delta must be more than 0 and at most 1: got 0"),
        (LEAST + "level = true", "level must be a whole number of at least 0: got True"),
        (LEAST + "level = 1\nsensitive = 'x'", "sensitive are a list: got 'x'"),
        (LEAST + "level = 1\nsensitive = [3]", "nodes as texts, and contexts as lists of texts: got 3"),
        (LEAST + "level = 1\nads = 101", "ads must be a whole number from 1 to 100: got 101"),
        (LEAST + "level = 1\nplaces = ['home']", "places are a table of labels with their locations"),
        (LEAST + "level = 1\nplaces = { home = 3 }", "places are a table of labels with their locations"),
        (LEAST + "level = 1\ninterest = ['jazz']", "interest is a text"),
        (LEAST + "level = 1\napps = 'weather'", "apps are a list of texts: got 'weather'"),
        (LEAST + "level = 1\nmax_per_day = -1", "max_per_day must be a whole number of at least 0: got -1"),
        (LEAST + "level = 1\nquiet = ['25:00-07:00']", "times of day such as 22:00-07:00: got '25:00-07:00'"),
        (LEAST + "level = 1\nquiet = ['07:00-07:00']", "times of day such as 22:00-07:00: got '07:00-07:00'"),
        (LEAST + "level = 1\nexact_under_mask = 1", "exact_under_mask is true or false: got 1"),
        (LEAST + "level = 1\nreply_after = 0.1", "reply_after must be a number from 0.2 to 5: got 0.1"),
        (LEAST + "level = 1\nreply_after = nan", "reply_after must be a number from 0.2 to 5: got nan"),
        (LEAST + "level = 1\ncache_for = -1", "cache_for must be a number from 0 to 3.16224e+07: got -1"),
        (LEAST + "level = 1\ncache_for = 1e300", "cache_for must be a number from 0 to 3.16224e+07: got 1e+300"),
        (LEAST + "level = 1\nkeep_days = 0", "keep_days must be a whole number from 1 to 36600: got 0"),
        (LEAST + "level = 1\nkeep_days = 1000000", "keep_days must be a whole number from 1 to 36600: got 1000000"),
        (LEAST.replace('"h.json"', "3") + "level = 1", "hierarchy is a text: got 3"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as refused:
        AdSettings.from_toml(text)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"level": 9}, "the levels are 0 to 4: got 9"),
        ({"delta": 0.1, "sensitive": ("2|nowhere",)}, "the hierarchy has no node"),
        ({"delta": 0.1, "sensitive": (("40.71,-74.01", "jazz", "tea"),)}, "the hierarchy has no context"),
        ({"disliked_categories": ("opera",)}, "the hierarchy has no category 'opera', which the user dislikes"),
        ({"interest": "opera"}, "'interest' has no category 'opera'"),
        ({"interest": ""}, "settings for ads need the interest, which is part of each context"),
        ({"places": {"home": "downtown"}}, "needs a latitude and a longitude"),
    ],
)
def test_settings_that_do_not_fit_the_hierarchy_are_one_sentence(
    tmp_path: Path, changed: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as refused:
        UserContexts(settings_for(tmp_path, "127.0.0.1:1", **changed))
    assert sentence in str(refused.value)


@pytest.mark.parametrize("content", [b"\xff", b"x" * 200_000, b'"', b"location,interest,query,probability\n1,1,1,x"])
def test_a_bad_file_of_probabilities_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "prior.csv").write_bytes(content)
    changed = {"delta": 0.1, "sensitive": (LATTE,), "prior": tmp_path / "prior.csv"}
    with pytest.raises(ValueError, match=r"^\S*/prior\.csv\b[^\n]*$"):
        UserContexts(settings_for(tmp_path, "127.0.0.1:1", **changed))


def test_a_hierarchy_that_asks_for_something_else_is_refused(tmp_path: Path) -> None:
    Hierarchy([Decimals("altitude")], [("1,1",)], [(0,)]).save(tmp_path / "hierarchy.json")
    with pytest.raises(ValueError, match="a phone knows location, interest and query: the hierarchy asks for 'alti"):
        UserContexts(settings_for(tmp_path, "127.0.0.1:1"))


@pytest.mark.parametrize("informed", [False, True], ids=["uniform", "prior"])
def test_the_cut_keeps_its_promise_for_every_context(tmp_path: Path, *, informed: bool) -> None:
    """No request raises the belief in the hospital by more than delta; computed from the contexts, not from the cut."""
    prior = dict.fromkeys(HIERARCHY.contexts, 1 / len(HIERARCHY.contexts))
    changed: dict[str, Any] = {"delta": DELTA, "sensitive": tuple(c for c in prior if c[0] == PLACES["hospital"])}
    if informed:
        weights = {context: 10.0 + number % 5 for number, context in enumerate(prior)}
        prior = {context: weight / sum(weights.values()) for context, weight in weights.items()}
        lines = [f'"{place}",{interest},{query},{prior[place, interest, query]!r}' for place, interest, query in prior]
        (tmp_path / "prior.csv").write_text("\n".join(["location,interest,query,probability", *lines]))
        changed["prior"] = tmp_path / "prior.csv"
    contexts = UserContexts(settings_for(tmp_path, "127.0.0.1:1", interest="jazz", **changed))
    on_cut = set(contexts.cut.indices.tolist())
    sent: dict[int, list[tuple[str, ...]]] = {}
    for context in prior:
        path = contexts.path_of(context)
        sent.setdefault(next(node for node in path if node in on_cut), []).append(context)
    assert 1 < len(sent) < len(prior)
    masses = [(group, sum(prior[context] for context in group)) for group in sent.values()]
    for event in changed["sensitive"]:
        rise = max(prior[event] * (event in group) / mass - prior[event] for group, mass in masses)
        assert rise <= DELTA + 1e-9
        assert contexts.disclosure[", ".join(event)] == pytest.approx(rise)


def test_the_context_of_an_app_s_query(tmp_path: Path) -> None:
    """A label with a place, a query of the tree, and all that leads to the root."""
    contexts = UserContexts(settings_for(tmp_path, "127.0.0.1:1", level=1, default_query="ramen"))
    assert contexts.situated("home", "latte").values == LATTE
    assert contexts.hierarchy.nodes[contexts.situated("home", "latte").node] == Node(
        1, ("40.71,-74.01", "jazz", "cafe")
    )
    assert contexts.situated("home", "").values == ("40.71,-74.01", "jazz", "ramen")
    for label, query in [(None, "latte"), ("gym", "latte"), ("home", "tea"), ("home", "|"), ("home", "+")]:
        assert contexts.situated(label, query).node == 0
    assert {contexts.situated("home", query).node for query in QUERIES} == {
        contexts.situated("home", "latte").node,
        contexts.situated("home", "ramen").node,
    }


def test_the_disclosure_of_a_level_is_reported(tmp_path: Path) -> None:
    """Of 36 contexts, a city, music and a cafe are 3 * 2 * 2; a city, food and a restaurant are 3."""
    contexts = UserContexts(settings_for(tmp_path, "127.0.0.1:1", sensitive=(LATTE, "0|40.72,-74.02|wine|ramen")))
    assert contexts.disclosure == {
        ", ".join(LATTE): pytest.approx(1 / 12 - 1 / 36),
        "0|40.72,-74.02|wine|ramen": pytest.approx(1 / 3 - 1 / 36),
    }


def test_a_disliked_category_takes_all_below_it_along(tmp_path: Path) -> None:
    contexts = UserContexts(settings_for(tmp_path, "127.0.0.1:1", disliked_categories=("music", "wine")))
    assert contexts.rules.categories == {"music", "jazz", "choir", "wine"}


@pytest.mark.parametrize(
    "line", ["40.71,-74.01,jazz,latte", '"40.71,-74.01",jazz,tea,0.5', '"40.71,-74.01",jazz,latte,x']
)
def test_a_bad_prior_names_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "prior.csv").write_text(f"location,interest,query,probability\n{line}\n")
    with pytest.raises(ValueError, match=r"prior\.csv, line 2: "):
        UserContexts(settings_for(tmp_path, "127.0.0.1:1", delta=0.1, sensitive=(LATTE,), prior=tmp_path / "prior.csv"))


def test_phones_of_a_process_share_a_hierarchy_and_the_cuts_of_equal_settings(tmp_path: Path) -> None:
    """Thousands of simulated phones have room for it once; a phone with another delta has a cut of its own."""
    sensitive = tuple(context for context in HIERARCHY.contexts if context[0] == PLACES["hospital"])
    first, second, careful = (
        UserContexts(settings_for(tmp_path, "127.0.0.1:1", interest="jazz", sensitive=sensitive, delta=delta))
        for delta in (DELTA, DELTA, DELTA / 10)
    )
    assert first.hierarchy is second.hierarchy is careful.hierarchy
    assert first.cut is second.cut
    assert careful.cut is not first.cut
    assert max(careful.disclosure.values()) <= DELTA / 10 < max(first.disclosure.values())
