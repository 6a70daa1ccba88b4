"""A user's habits: traces of where they were, the chain that is learned from them, and how it is kept current."""
