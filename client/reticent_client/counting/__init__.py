"""Taking part in counts: what a phone does with an announced query."""
