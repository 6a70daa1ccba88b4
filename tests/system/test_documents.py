"""Every command and example of the documents runs, or is checked against what it speaks of."""

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reticent.console import program
from reticent.storage.database import Database
from tests.system.documents import (
    ROOT,
    SHELLS,
    Block,
    Command,
    blocks,
    commands,
    documents,
    first_example,
)

BIN = Path(sys.executable).parent
SLOW = {"apps.md", "deployment.md", "experiments.md", "simulator.md"}  # real phones and servers; a simulation
HERE = [["mask"], ["certs"], ["count"], ["rates"], ["experiment"]]  # run in the process of the tests
DEADLINE = 300  # seconds, for one command
SHOWN_ONLY = {"text", "json", "toml", "mermaid"}
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)#\s]+)[^)]*\)")


@pytest.fixture
def _closed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes the files that examples leave open, as the end of a reader's program does."""
    opened: list[Database] = []
    begin = Database.__init__

    def noted(database: Database, *arguments: Any, **options: Any) -> None:
        begin(database, *arguments, **options)
        opened.append(database)

    monkeypatch.setattr(Database, "__init__", noted)
    yield
    for each in opened:
        each.close()


@pytest.mark.usefixtures("_closed_in_the_end")
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(path, marks=pytest.mark.slow if path.name in SLOW else (), id=str(path.relative_to(ROOT)))
        for path in documents()
    ],
)
def test_the_examples_of_a_document_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in one empty folder; Python blocks share their names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(document):
        if block.language == "python":
            run_python(block, names)
        elif block.language in SHELLS:
            for command in commands(block):
                follow(command, block.place)
        else:
            assert block.language in SHOWN_ONLY, f"{block.place}: say what this block is"


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_of_a_document_lead_somewhere(document: Path) -> None:
    """Those inside the repository; the tests reach no other."""
    for link in LINK.finditer(document.read_text(encoding="utf-8")):
        if "://" not in link["target"]:
            assert (document.parent / link["target"]).exists(), link[0]


def test_the_readme_has_an_example() -> None:
    assert "reticent_client" in first_example(ROOT / "README.md")


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Runs a Python block; one with prompts must print what it shows."""
    if ">>> " in block.text:
        test = doctest.DocTestParser().get_doctest(block.text, names, block.place, None, block.line)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
        problems: list[str] = []
        runner.run(test, out=problems.append, clear_globs=False)
        names.update(test.globs)
        assert not problems, "".join(problems)
    else:
        code = "\n" * block.line + block.text  # a traceback names the document's own lines
        exec(compile(code, block.place, "exec"), names)  # noqa: S102  # that is the test


def follow(command: Command, place: str) -> None:
    """Runs a command, or checks it if it would need the network or the whole house."""
    for prefix, check in CHECKED.items():
        if command.line.startswith(prefix):
            check(command, place)
            return
    code, printed = run_here(command) if is_simple(command) else run_in_shell(command)
    assert code == 0, f"{place}: {command.line}\n{printed}"
    assert shows(command.shown, printed), f"{place}: {command.line}\n{printed}"


def is_simple(command: Command) -> bool:
    """Whether a command is one run of `reticent` that ends by itself, without anything for a shell to do."""
    words = command.words
    return words[:1] == ["reticent"] and words[1:2] in HERE and not set("|&;<>()$`*?~\n\\") & set(command.line)


def run_here(command: Command) -> tuple[int, str]:
    """Run `reticent` in this process: it starts in no time."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = program.main(command.words[1:])
    return code, output.getvalue()


def run_in_shell(command: Command) -> tuple[int, str]:
    """Run a command as the reader does."""
    run = subprocess.run(  # noqa: S602  # a shell is what the reader has
        command.line,
        shell=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return run.returncode, run.stdout


def shows(shown: tuple[str, ...], printed: str) -> bool:
    """Whether the lines shown stand in what was printed, in order; "..." stands for anything."""
    lines = iter(line.strip() for line in printed.splitlines())
    for line in filter(None, map(str.strip, shown)):
        pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
        if line != "..." and not any(pattern.fullmatch(each) for each in lines):
            return False
    return True


def check_make(command: Command, place: str) -> None:
    """Asks make itself whether it knows the targets."""
    goals = [word for word in command.words[1:] if "=" not in word]
    makefile = (ROOT / "Makefile").read_text()
    for goal in goals:
        assert re.search(rf"^{re.escape(goal)}:.*## ", makefile, re.MULTILINE), f"{place}: {goal}"


def check_install(command: Command, place: str) -> None:
    """The extras named are those of the project."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in command.words[2:]:
        named = re.fullmatch(r"reticent(\[(?P<extras>[\w,]+)\])?", word)
        assert named, f"{place}: {word}"
        assert set((named["extras"] or "cli").split(",")) <= extras.keys(), f"{place}: {word}"


def check_venv(command: Command, place: str) -> None:
    """The program is installed, and the files named are there."""
    program, *arguments = command.words
    assert (BIN / Path(program).name).exists(), f"{place}: {program}"
    for argument in arguments:
        path = argument.partition("::")[0]
        if "/" in path:
            assert (ROOT / path).exists(), f"{place}: {argument}"


def check_clone(command: Command, place: str) -> None:
    """A clone is entered by the name it gets."""
    assert len(command.words) > 2, f"{place}: clone what?"


def check_folder(command: Command, place: str) -> None:
    """The folder of a clone has the project's name."""
    assert command.words[1:] == ["reticent"], f"{place}: {command.line}"


def check_apt(command: Command, place: str) -> None:
    """The Makefile mends a missing venv with the same package."""
    assert re.fullmatch(r"sudo apt-get install python3(\.\d+)?-venv", command.line), place


CHECKED: dict[str, Callable[[Command, str], None]] = {
    "make": check_make,
    "pip install": check_install,
    ".venv/bin/": check_venv,
    "git clone": check_clone,
    "cd ": check_folder,
    "sudo apt-get": check_apt,
}


SAMPLE = """\
# A sample

```python
x = 6 * 7
```

```python
>>> x
42
```

1. Indented:

   ```console
   $ echo one; echo two
   one
   ...
   $ printf 'a\\n%s\\n' \\
   > b
   b
   ```

```sh
# a comment
make test
pip install 'reticent[cli,plan]'
```
"""


def _follow_all(tmp_path: Path, text: str) -> None:
    document = tmp_path / "sample.md"
    document.write_text(text)
    names: dict[str, Any] = {}
    for block in blocks(document):
        if block.language == "python":
            run_python(block, names)
        else:
            for command in commands(block):
                follow(command, block.place)


def test_a_sample_document_passes(tmp_path: Path) -> None:
    _follow_all(tmp_path, SAMPLE)
    assert [block.language for block in blocks(tmp_path / "sample.md")] == [
        "python",
        "python",
        "console",
        "sh",
    ]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("6 * 7", "1 / 0"),
        ("\n42\n", "\n41\n"),
        ("\n   one\n", "\n   three\n"),
        ("\n   b\n", "\n   c\n"),
        ("$ echo one; echo two", "$ echo one; false"),
        ("make test", "make coffee"),
        ("[cli,plan]", "[wings]"),
        ("pip install 'reticent", "pip install 'discreet"),
        ("```\n\n```sh", "\n\n```sh"),
    ],
)
def test_a_document_that_is_wrong_is_caught(tmp_path: Path, right: str, wrong: str) -> None:
    assert right in SAMPLE
    with pytest.raises((AssertionError, ZeroDivisionError, ValueError)):
        _follow_all(tmp_path, SAMPLE.replace(right, wrong))
