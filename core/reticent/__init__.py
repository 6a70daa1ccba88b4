"""What all roles of Reticent agree on."""

__version__ = "0.1.0"
