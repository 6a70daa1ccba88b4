"""The command line in cyclopts, which is imported only when it is needed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import cyclopts

from reticent import __version__

if TYPE_CHECKING:
    from reticent.console.program import Command

HELP = "Release a phone's contexts within the privacy bounds that its user sets, and count phones privately."


def run(
    commands: Sequence["Command"],
    called: "Command | None",
    app: cyclopts.App | None,
    arguments: Sequence[str],
) -> int:
    """Run the arguments; returns the exit code of the subcommand, or 0.

    Args:
        commands: All subcommands, for the help.
        called: The subcommand of the arguments.
        app: Its app.
        arguments: Everything after `reticent`.
    """
    program = cyclopts.App(
        name="reticent",
        help=HELP,
        version=f"reticent {__version__}",
        suppress_keyboard_interrupt=False,
    )
    for command in commands:
        shown = app if command is called and app is not None else cyclopts.App(name=command.name)
        if shown.default_command is None:  # a default command has a longer help of its own
            shown.help = command.help
        program.command(shown, name=command.name)
    try:
        return int(
            program(
                arguments,
                exit_on_error=False,
                print_error=False,
                result_action="return_int_as_exit_code_else_zero",
            )
        )
    except cyclopts.CycloptsError as error:
        full_name = " ".join(["reticent", *(error.command_chain or ())])
        raise ValueError(f"{error} See `{full_name} --help`.") from error
