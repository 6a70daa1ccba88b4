"""The experiments: each repeats one published figure or table, and reports which findings hold."""
