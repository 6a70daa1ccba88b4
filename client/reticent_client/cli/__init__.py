"""The commands `reticent mask` and `reticent phone`."""
