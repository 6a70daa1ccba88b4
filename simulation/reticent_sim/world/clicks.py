"""The probability that a user clicks on an ad: it depends on the query, the user's interests and the distance."""

from __future__ import annotations

import numpy as np

from reticent_sim.world.businesses import BRANDS, GENERAL_OF, LEAVES, Businesses, Floats, Numbers, distance

NAMED, GENERIC, OTHER_BRAND, ALIKE, UNRELATED = 0.95, 0.6, 0.25, 0.08, 0.01
"""The appeal of an ad to a search for its brand, for its category, for another brand of it, for another category of the
same general one, and for anything else."""
REACH = 2.0
"""The distance in kilometres at which half of the clicks are left."""
INDIFFERENT, CLOSE = 0.7, 0.85
"""The appeal to a user who is not interested in the category, or only in its general category."""


def click_probabilities(
    category: Numbers,
    brand: Numbers,
    interests: Numbers,
    units: Numbers,
    *,
    businesses: Businesses,
    ads: Numbers,
    reach: float = REACH,
) -> Floats:
    """(searches,): the probability that each ad is clicked in the search beside it.

    Args:
        category: (searches,): the category that each search is for.
        brand: (searches,): the brand that it names; -1 if none.
        interests: (searches, interests): the categories that the user is interested in.
        units: (searches, 2): the coordinates of the user.
        businesses: The businesses that advertise.
        ads: (searches,): the number of the ad.
        reach: The distance in kilometres at which half of the clicks are left.
    """
    of_ad = businesses.category[ads]
    same, alike = category == of_ad, GENERAL_OF[category] == GENERAL_OF[of_ad]
    named = same & (brand == businesses.brand[ads])
    match = np.select([named, same & (brand < 0), same, alike], [NAMED, GENERIC, OTHER_BRAND, ALIKE], UNRELATED)
    liked = (interests == of_ad[:, None]).any(axis=1)
    close = (GENERAL_OF[interests] == GENERAL_OF[of_ad][:, None]).any(axis=1)
    taste = np.select([liked, close], [1.0, CLOSE], INDIFFERENT)
    far = distance(units, businesses.units[ads])
    return np.asarray(match * taste * businesses.quality[ads] / (1 + (far / reach) ** 2))


def brand_of(query: Numbers) -> Numbers:
    """The brand that each query names, by its rank in the category; -1 if none. Every other query names a brand."""
    return np.where((query % 2 == 1) & (query // 2 < BRANDS), query // 2, -1)


def typed_text(category: int, query: int) -> str:
    """The text of a query.

    >>> typed_text(0, 1)
    'coffee 2'
    """
    return f"{LEAVES[category]} {query + 1}"
