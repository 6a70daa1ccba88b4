"""Speed and size of Reticent beside its rivals, measured in one run."""
