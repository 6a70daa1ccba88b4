"""The report of a simulated run: a page, tables as CSV, a live view, and one screen of results."""

from __future__ import annotations

from reticent_sim.report.run.csvs import write_csvs
from reticent_sim.report.run.live import LiveView
from reticent_sim.report.run.page import write_report
from reticent_sim.report.run.summary import summary

__all__ = ["LiveView", "summary", "write_csvs", "write_report"]
