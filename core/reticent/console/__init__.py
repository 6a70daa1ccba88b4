"""The program `reticent`, and what the command lines of all roles share."""
