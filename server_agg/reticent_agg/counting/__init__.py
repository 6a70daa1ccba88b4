"""The life of a query: announced, collected, closed, decided."""
