"""The page of a run says what its data say, whatever parts there are and whatever is in them."""

from __future__ import annotations

import copy
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from reticent_sim.report.run.summary import summary
from tests.sim.report.made_run import made_run
from tests.sim.report.pages import figures, find, numbers, page_of, sentence, text_of

FIGURES = [
    "rises", "shares", "days", "revenue", "progress", "precision", "coverage", "intervals",
    "cohorts", "rates", "largest", "cost", "budget", "memory", "faults", "outcomes", "failures", "malice",
]  # fmt: skip
FIGURES_OF = {
    "masks": {"rises", "shares"},
    "days": {"days", "revenue", "progress", "precision", "coverage"},
    "counts": {"intervals", "cohorts", "largest"},
    "rates": {"rates"},
    "cost": {"cost", "memory"},
    "budget": {"budget"},
    "faults": {"faults", "outcomes"},
    "malice": {"malice"},
    "failures": {"failures"},
} | {key: set() for key in ("scenario", "trace", "seconds", "delta", "level", "problems")}
RUN = made_run(phones=60, days=3)
SMALL = RUN | {
    "counts": [RUN["counts"][0] | {"counters": RUN["counts"][0]["counters"][:2]}],
    "faults": RUN["faults"][:2],
    "masks": [mask | {"rises": {"max": 0.1, "histogram": {"edges": [0, 1], "counts": [9]}}} for mask in RUN["masks"]],
}


def test_every_figure_is_there_with_a_sentence_and_its_numbers(tmp_path: Path) -> None:
    page = page_of(RUN, tmp_path)
    assert figures(page) == FIGURES
    by_check = {mask["check"]: mask for mask in RUN["masks"]}
    above = by_check["none"]["breaches"]
    assert f"Without one, it did in {above}" in sentence(page, "rises")
    assert sum(int(row[3].replace(",", "")) for row in numbers(page, "rises") if row[0] == "no mask") == 60 * 3
    assert sentence(page, "shares").endswith("optimal 84.2 %, hybrid 78.1 %.")
    ads = [day["ads"] for day in RUN["days"]]
    assert [[float(cell) for cell in row[1:]] for row in numbers(page, "revenue")] == [
        pytest.approx([day["revenue"][key] for key in ("none", "learned", "exact")], rel=0.005) for day in ads
    ]
    assert [[float(cell.rstrip(" %")) for cell in row[1:]] for row in numbers(page, "progress")] == [
        pytest.approx([100 * value for value in (day["progress"], *day["progress_interval"])], abs=0.051) for day in ads
    ]
    assert [row[2] for row in numbers(page, "precision")] == [f"{day['requests']}" for day in ads]
    counters = [counter for each in RUN["counts"] if each["kind"] == "counters" for counter in each["counters"]]
    inside = [each["low"] <= each["truth"] <= each["high"] for each in counters]
    assert [row[-1] == "yes" for row in numbers(page, "intervals")] == inside
    assert sentence(page, "intervals").startswith(f"{sum(inside)} of {len(inside)} intervals at 95 %")
    assert len(numbers(page, "faults")) == len(RUN["faults"])
    assert [row[2] == "yes" for row in numbers(page, "malice")] == [each["noticed"] for each in RUN["malice"]]
    assert text_of(find(page, "trace")) == RUN["trace"]
    scenario = {row[0]: row[1] for row in numbers(page, "scenario")}
    assert scenario["check"] == "hybrid"
    assert scenario["malicious"] == '{"garbage": 3, "wild": 3}'


def test_broken_promises_are_said(tmp_path: Path) -> None:
    run = copy.deepcopy(RUN)
    run["masks"][0] |= {"breaches": 3, "rises": run["masks"][0]["rises"] | {"max": 0.34}}
    run["counts"][0]["exact"] = False
    run["counts"][1]["exact"] = None
    run["budget"]["spent_epsilon_max"] = 4.25
    run["problems"] = ["the aggregation server has ended"]
    page = page_of(run, tmp_path)
    assert sentence(page, "rises").startswith(
        "With a mask, a belief rose by more than delta = 0.1 (largest: 0.34), in 3 hours at a sensitive place."
    )
    assert "6 of 7 sums were compared with the contributions: 1 did not equal them." in sentence(page, "intervals")
    assert sentence(page, "budget").endswith("The limit is exceeded!")
    run["budget"] |= {"spent_epsilon_max": 3.5, "spent_delta_max": 2e-4}
    spent = "No phone spent more than 3.5 of its epsilon of 4 and"
    mean = "of its delta of 0.0001; the mean phone spent epsilon 2.92."
    assert sentence(page_of(run, tmp_path), "budget") == f"{spent} 0.0002 {mean} The limit is exceeded!"
    assert sentence(page_of(RUN, tmp_path), "budget") == f"{spent} 6e-05 {mean}"
    assert sentence(page, "faults").endswith("it ended with 1 problem.")
    assert "the aggregation server has ended" in text_of(page)
    run["masks"][0]["breaches"] = 0
    assert "in 0 hours at a sensitive place" in sentence(page_of(run, tmp_path), "rises")


def test_the_report_and_the_screen_state_where_colluders_void_epsilon(tmp_path: Path) -> None:
    run = RUN | {"collusions": [{"covered": covered} for covered in (False, True, False)]}
    void = "; epsilon does not hold in 2 cohorts: more colluders than the query tolerates;"
    assert void in sentence(page_of(run, tmp_path), "malice")
    output = StringIO()
    summary(Console(width=80, file=output), run)
    assert void in " ".join(output.getvalue().split())
    assert "epsilon does not hold" not in sentence(page_of(RUN, tmp_path), "malice")


def test_the_report_states_how_many_queries_tolerate_no_wild_phone(tmp_path: Path) -> None:
    run = RUN | {"counts": [*RUN["counts"], RUN["counts"][0] | {"cohorts": 1}]}
    assert "; no wild phone is tolerated in 1 query of one cohort" in sentence(page_of(run, tmp_path), "malice")
    honest = run | {"malice": [each for each in RUN["malice"] if each["kind"] != "wild"]}
    assert "tolerated" not in sentence(page_of(honest, tmp_path), "malice")
    assert "tolerated" not in sentence(page_of(RUN, tmp_path), "malice")


def test_a_check_that_is_not_private_promises_nothing(tmp_path: Path) -> None:
    run = RUN | {"masks": [*RUN["masks"], RUN["masks"][0] | {"check": "mask_sensitive", "released": 0.95}]}
    assert sentence(page_of(run, tmp_path), "shares") == (
        "Share of contexts released within delta: optimal 84.2 %, hybrid 78.1 %. "
        "Share of contexts released by checks that are not private: mask_sensitive 95 %."
    )


@pytest.mark.parametrize("part", FIGURES_OF)
def test_a_run_without_a_part_or_with_nothing_else_has_a_page(part: str, tmp_path: Path) -> None:
    without = figures(page_of({key: value for key, value in RUN.items() if key != part}, tmp_path))
    assert without == [figure for figure in FIGURES if figure not in FIGURES_OF[part]]
    assert set(figures(page_of({part: RUN[part]}, tmp_path))) == FIGURES_OF[part]


def test_one_day_without_ads_counts_and_malice_has_a_page(tmp_path: Path) -> None:
    run = made_run(phones=20, days=1) | {"counts": [], "rates": [], "malice": [], "faults": [], "failures": {}}
    run["days"][0]["ads"] = None
    run["budget"] = {"epsilon": 0.0, "delta": 0.0, "spent_epsilon_mean": 0.0, "spent_epsilon_max": 0.0}
    page = page_of(run, tmp_path)
    assert figures(page) == ["rises", "shares", "days", "cost", "memory"]
    headings = [text_of(heading) for heading in page.iter("h2")]
    assert headings == ["What an adversary learned", "What it costs", "The run"]
    assert {a.attrib["href"][1:] for a in page.iter("a")} <= {e.attrib["id"] for e in page.iter() if "id" in e.attrib}


def replaced(value: Any, kind: type, by: Any) -> Any:
    """The same data with another value in place of every value of a type."""
    if isinstance(value, dict):
        return {key: replaced(each, kind, by) for key, each in value.items()}
    if isinstance(value, list):
        return [replaced(each, kind, by) for each in value]
    return by if type(value) is kind else value


@pytest.mark.parametrize("number", [None, float("nan"), float("inf"), 0.0, -1.0, 1e12])
def test_unusual_numbers_have_a_page(number: float | None, tmp_path: Path) -> None:
    page = page_of(replaced(RUN, float, number), tmp_path)
    texts = [text for each in page.iter() for text in (each.text or "", each.tail or "", *each.attrib.values())]
    odd = {"nan", "inf", "None", "nan%", "inf%"}
    assert not odd & {word for text in texts[1:] for word in re.split(r"[\s,(){}:\[\]]", text)}


@settings(max_examples=5)
@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12))
def test_no_text_of_a_run_becomes_markup(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder, text = tmp_path_factory.getbasetemp(), f"<b a='\"'>&lt;{text}"
    page, plain = (page_of(replaced(SMALL, str, each), folder) for each in (text, "plain"))
    assert [each.tag for each in page.iter()] == [each.tag for each in plain.iter()]
    assert [sorted(each.attrib) for each in page.iter()] == [sorted(each.attrib) for each in plain.iter()]
    assert numbers(page, "malice")[0][4] == " ".join(text.split())


def test_the_page_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    page = page_of(RUN, tmp_path)
    assert not {each.tag for each in page.iter()} & {"script", "link", "img", "iframe", "object", "base", "form"}
    text = (tmp_path / "report.html").read_text()
    assert "://" not in text
    assert "@import" not in text
    references = [value for each in page.iter() for key, value in each.attrib.items() if key in {"href", "src"}]
    assert all(reference.startswith("#") for reference in references)


def test_every_name_on_the_page_is_its_own_and_every_picture_has_words(tmp_path: Path) -> None:
    page = page_of(RUN, tmp_path)
    names = [each.attrib["id"] for each in page.iter() if "id" in each.attrib]
    assert len(names) == len(set(names))
    pictures = [each for each in page.iter("svg") if each.attrib.get("role") == "img"]
    assert len(pictures) >= 15
    for picture in pictures:
        assert all(text_of(find(page, name)) for name in picture.attrib["aria-labelledby"].split())
    for figure in page.iter("figure"):
        assert text_of(find(page, figure.attrib["aria-labelledby"]))
