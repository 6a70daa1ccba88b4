"""What people read of a run: the tables on the terminal and the pictures."""
