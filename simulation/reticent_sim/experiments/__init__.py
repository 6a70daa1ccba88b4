"""The experiments: each makes one figure or table anew, as CSV, JSON and a picture, and says which findings hold."""
