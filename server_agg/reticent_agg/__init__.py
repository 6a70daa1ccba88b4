"""The aggregation server: announces queries, collects what phones contribute, adds it up, and never reads it."""
