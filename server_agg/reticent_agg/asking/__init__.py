"""The analyst's side: what to expect of a question, asking it, and reading what is released."""
