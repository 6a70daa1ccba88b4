"""Context hierarchies: exact contexts generalise step by step, and cuts bound what a general context discloses."""

from reticent.hierarchy._attributes import Attribute, Decimals, Tree, UnknownCategory
from reticent.hierarchy._cuts import Cut, level_cut, lowest_cut
from reticent.hierarchy._hierarchy import DEFAULT_SEQUENCE, Hierarchy
from reticent.hierarchy._node import Context, Node

__all__ = [
    "DEFAULT_SEQUENCE",
    "Attribute",
    "Context",
    "Cut",
    "Decimals",
    "Hierarchy",
    "Node",
    "Tree",
    "UnknownCategory",
    "level_cut",
    "lowest_cut",
]
