"""Figures 4.4 to 4.6 and 5.2 of Götz's dissertation, and the surface of disclosure, revenue and bytes."""
