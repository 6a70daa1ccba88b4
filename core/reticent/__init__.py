"""The code that all roles of Reticent share."""

__version__ = "0.1.0"
