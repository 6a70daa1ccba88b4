"""The choice of a few ads for a generalised context: section 4.3 of Götz's dissertation.

A server runs `greedy` for a generalised context, and a phone chooses among the ads by its exact context, with `best`.
With k = 1 this is server-only personalization. With the most general context, it is client-only.
"""

from reticent.selection._exact import exact
from reticent.selection._greedy import Revenues, Selection, best, greedy
from reticent.selection._rates import Rates

__all__ = ["Rates", "Revenues", "Selection", "best", "exact", "greedy"]
