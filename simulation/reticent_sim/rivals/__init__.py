"""The published algorithms as their sources list them, to compare Reticent with."""
