"""How checks compute policies: windows between releases, searches over them, and linear programs to the optimum."""
