"""The exceptions that Reticent raises on purpose.

    ReticentError                something was asked properly, and cannot be done
    └── MissingExtra             it needs an extra that is not installed

Every role derives its own family from `ReticentError`. Bad arguments are a plain `ValueError`.
"""

__all__ = ["MissingExtra", "ReticentError"]


class ReticentError(Exception):
    """What every exception of Reticent's own derives from."""


class MissingExtra(ReticentError, ImportError):
    """What was asked needs a library that only an extra brings.

    Args:
        wanted: What was asked, as the user calls it.
        extra: The extra that brings the library.
        module: The library.
    """

    def __init__(self, wanted: str, extra: str, module: str) -> None:
        super().__init__(f"{wanted} needs {module}: pip install 'reticent[{extra}]'", name=module)
        self.extra = extra
