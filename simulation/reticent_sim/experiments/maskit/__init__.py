"""Section 3.7 of Götz's dissertation: table 3.2 and figures 3.5 to 3.9."""
