"""Files that are written whole or not at all, JSON documents, SQLite databases."""
