"""Rewrites the snapshots of help texts: `python -m tests.snapshots`. Read the difference before you commit it."""

from tests.snapshots.help_texts import rewrite

if __name__ == "__main__":
    rewrite()
