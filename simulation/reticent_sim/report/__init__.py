"""The report of a run: the tables on the terminal and the pictures."""
