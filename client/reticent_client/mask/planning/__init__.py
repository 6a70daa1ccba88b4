"""The planning of checks: windows between releases, searches over them, and linear programs to the optimum."""
