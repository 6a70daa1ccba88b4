"""The experiments: the published figures and tables, and a month of twenty people, as numbers and findings."""
