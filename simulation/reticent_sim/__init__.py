"""People, days and experiments: what Reticent is tried on before a phone runs it."""
