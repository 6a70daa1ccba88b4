"""The exceptions that Reticent raises on purpose.

    ReticentError                a proper request that cannot be fulfilled
    └── MissingExtra             it needs an extra that is not installed

Every role derives its own family from `ReticentError`. Bad arguments are a plain `ValueError`.
"""

__all__ = ["MissingExtra", "ReticentError"]


class ReticentError(Exception):
    """The base of all exceptions of Reticent."""


class MissingExtra(ReticentError, ImportError):
    """A command or function needs a library of an extra.

    Args:
        wanted: The command or function, as the user calls it.
        extra: The extra that brings the library.
        module: The library.
    """

    def __init__(self, wanted: str, extra: str, module: str) -> None:
        super().__init__(f"{wanted} needs {module}: pip install 'reticent[{extra}]'", name=module)
        self.extra = extra
