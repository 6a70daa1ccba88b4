"""The report of a run."""
