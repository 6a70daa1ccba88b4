"""The experiments: the published figures and tables, and the month of the demo, as numbers and findings."""
