"""The pictures of the experiments: each draws what an experiment found, and computes nothing."""
