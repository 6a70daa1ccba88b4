"""Taking part in counts: what a phone does when it is asked."""
