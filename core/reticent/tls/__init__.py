"""The certificates by which servers and analysts know each other."""
