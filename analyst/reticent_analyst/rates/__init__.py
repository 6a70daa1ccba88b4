"""Click-through rates from private counts, from the root of a context hierarchy down."""
