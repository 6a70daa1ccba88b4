"""What Reticent is measured against: the published algorithms, as they were written."""
