"""Hierarchies for tests: one that reads like a phone's, and small random ones of every shape."""

from hypothesis import strategies as st

from reticent.hierarchy import Decimals, Hierarchy, Tree

INTERESTS = {"jazz": "music", "opera": "music", "wine": "drinks", "music": "leisure", "drinks": "leisure"}
QUERIES = {"trumpet": "jazz", "carmen": "opera", "merlot": "wine", "jazz": "music", "opera": "music", "wine": "drinks"}
ATTRIBUTES = (Decimals("location"), Tree("interest", 3, INTERESTS), Tree("query", 3, QUERIES))
CONTEXTS = [
    ("40.72713,-73.99102", "jazz", "trumpet"),
    ("40.72713,-73.99102", "jazz+wine", "merlot"),
    ("40.72714,-73.99102", "jazz", "trumpet"),
    ("40.80000,-73.99102", "opera", "carmen"),
    ("-40.8,-73.99102", "opera", "carmen"),
]

PLACES = ["0.04,0", "-0.04,0", "0.5,0", "0.51,0", "1.5,0.0", "7,-7"]
SMALL = Decimals("location", (None, 1, 0)), Tree("query", 3, QUERIES)
SEQUENCES = [
    [(0, 0)],
    [(0, 0), (1, 0), (2, 0), (2, 2)],
    [(0, 0), (0, 1), (0, 2), (2, 2)],
    [(0, 0), (0, 1), (1, 1), (2, 1)],
]


def hierarchies(contexts: int) -> st.SearchStrategy[Hierarchy]:
    """Hierarchies of a few contexts."""
    context = st.tuples(
        st.sampled_from(PLACES), st.sampled_from(["trumpet", "carmen", "merlot", "jazz", "trumpet+wine"])
    )
    lists = st.lists(context, min_size=1, max_size=contexts, unique=True)
    return st.builds(Hierarchy, st.just(SMALL), lists, st.sampled_from(SEQUENCES))
