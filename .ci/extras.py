"""Installs each extra of the built wheel alone, and runs its commands.

Run as `python .ci/extras.py FOLDER`. The folder holds the wheel, `versions.txt` (the locked versions, as bounds for
pip), and `venv`, an environment with the wheel without extras. Every extra gets an environment that sees that one, or
that of `cli`, which it contains: so each has exactly its own libraries, and none is installed twice.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from reticent.console.program import COMMANDS, EXTRAS

ROOT = Path(__file__).parents[1]
FOLDER = Path(sys.argv[1]).resolve()
[WHEEL] = FOLDER.glob("reticent-*.whl")
BASE = {
    "cli": "",
    "plan": "",
    "analyst": "cli",
    "agg": "cli",
    "keys": "cli",
    "frames": "",
    "plot": "",
    "postgres": "",
    "server": "cli",
    "cluster": "cli",
}
"""Of each extra, the environment that it extends. `sim` is tested with the README's example."""

SECONDS = 60.0


def main() -> None:
    """Install and run them, one after the other."""
    for extra, base in BASE.items():
        begin = time.monotonic()
        install(extra, base)
        run_python(extra, "from reticent_client import Phone, connect")
        for command in COMMANDS:
            if runs(command.extra, extra):
                reticent(extra, command.name, "--help")
            else:
                refused = reticent(extra, command.name, "--help", code=2).stderr
                if f"pip install 'reticent[{command.extra}]'" not in refused:
                    sys.exit(f"[{extra}] reticent {command.name}: {refused}")
        CHECKS[extra]()
        sys.stdout.write(f"[{extra}] {time.monotonic() - begin:.1f} s\n")


def runs(needed: str, installed: str) -> bool:
    """Whether an extra brings what a command needs."""
    return set(EXTRAS[needed]) <= set(EXTRAS[installed])


def install(extra: str, base: str) -> None:
    """An environment with one extra, over the one that it extends."""
    here = FOLDER / extra
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", here], check=True)
    [packages] = here.glob("lib/python*/site-packages")
    below = [FOLDER / folder / packages.relative_to(here) for folder in ({base} - {""} | {"venv"})]
    (packages / "below.pth").write_text("".join(f"{path}\n" for path in below))
    pip = [FOLDER / "venv" / "bin" / "python", "-m", "pip", "--python", python(extra), "--disable-pip-version-check"]
    pip += ["--quiet", "install", "--only-binary", ":all:", "--constraint", FOLDER / "versions.txt"]
    subprocess.run([*pip, f"{WHEEL}[{extra}]"], check=True)


def python(extra: str) -> Path:
    """The interpreter of an environment."""
    return FOLDER / extra / "bin" / "python"


def run_python(extra: str, code: str) -> None:
    """Run code in an environment; it must succeed."""
    subprocess.run([python(extra), "-c", code], cwd=FOLDER / extra, check=True, timeout=SECONDS)


def reticent(extra: str, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in an environment; it must end with this code."""
    command = [str(each) for each in (python(extra), "-m", "reticent", *arguments)]
    done = subprocess.run(command, cwd=FOLDER / extra, check=False, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != code:
        sys.exit(f"[{extra}] reticent {' '.join(command[3:])} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done


def serve(extra: str, *arguments: object) -> None:
    """Start a server, wait until it prints its addresses, and stop it."""
    log = FOLDER / extra / "serve.log"
    command = [str(each) for each in (python(extra), "-m", "reticent", *arguments)]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, cwd=FOLDER / extra, stdout=subprocess.PIPE, stderr=errors) as server,
    ):
        first = server.stdout.readline() if server.stdout else b""
        server.send_signal(signal.SIGTERM)
        code = server.wait(SECONDS)
    if not first or code:
        sys.exit(f"[{extra}] reticent {' '.join(command[3:])} ended with {code}: {log.read_text()}")


def address() -> str:
    """A free one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def make_certificates() -> None:
    """Of the servers, for the next checks."""
    reticent("cli", "certs", "init", FOLDER / "certs", "--analyst", "ada")


def check_plan() -> None:
    """The optimal check, which needs SciPy."""
    run_python(
        "plan",
        "from reticent_client import MarkovChain, optimal\n"
        "chain = MarkovChain.fit([['home', 'work'], ['home', 'hospital']])\n"
        "assert optimal(chain, sensitive={'hospital'}, delta=0.1).utility > 0\n",
    )


def check_frames() -> None:
    """Data frames and Parquet files."""
    run_python(
        "frames",
        "from reticent_client.habits.frames import traces_to_frame\n"
        "from reticent_client.habits.trace_files import read_traces\n"
        "from reticent_client.habits.traces import Traces\n"
        "traces = Traces.of([('ann', '2027-03-01T12:00', 'home')])\n"
        "traces_to_frame(traces).to_parquet('traces.parquet')\n"
        "assert read_traces('traces.parquet').readings == traces.readings\n",
    )


def check_plot() -> None:
    """Pictures, of releases and of masks."""
    run_python(
        "plot",
        "from pathlib import Path\n"
        "from reticent.privacy import seeded\n"
        "from reticent_analyst import Statistic\n"
        "from reticent_analyst.plot import save_plot\n"
        "from reticent_client import MarkovChain, hybrid\n"
        "from reticent_client.mask.day_view import view_days\n"
        "from reticent_client.pictures.days import draw_days\n"
        "save_plot([Statistic('total', 'visits', 12.0, 11.0, 13.0)], Path('release.png'), title='gym')\n"
        "days = [['home', 'work'], ['home', 'hospital']]\n"
        "policy = hybrid(MarkovChain.fit(days), sensitive={'hospital'}, delta=0.1)\n"
        "draw_days(policy, view_days(policy, [('2027-03-01', days[0])], seeded(1)), Path('mask.png'))\n",
    )


def check_postgres() -> None:
    """The driver of PostgreSQL, without a server."""
    run_python("postgres", "from reticent.storage._postgres import PostgresDatabase")


def check_analyst(extra: str = "analyst") -> None:
    """A plan, without a server."""
    plan = reticent(extra, "count", "plan", ROOT / "examples" / "queries" / "walking.toml", "--population", 1000)
    if "cohorts" not in plan.stdout:
        sys.exit(f"[{extra}] this is no plan: {plan.stdout}")
    run_python(
        extra,
        "from reticent.hierarchy import Hierarchy, Tree\n"
        "from reticent_analyst.rates import noise_report\n"
        "hierarchy = Hierarchy([Tree('query', 1, {'a': None, 'b': None})], [('a',), ('b',)], [(0,)])\n"
        "assert noise_report(hierarchy, epsilon=1.0, delta=1e-6, entries=4).skellam > 0\n",
    )


def check_keys(extra: str = "keys") -> None:
    """A key server with a folder of its own."""
    passphrase = FOLDER / extra / "passphrase"
    passphrase.touch(mode=0o600)
    passphrase.write_text("correct horse battery staple\n")
    serve(
        *(extra, "keys", "serve", "--folder", FOLDER / extra / "keyfolder", "--certs", FOLDER / "certs"),
        *("--passphrase-file", passphrase, "--phones", address(), "--decisions", address()),
        *("--simulation", "--key-bits", 1024, "--metrics", "127.0.0.1:0"),
    )


def check_agg(extra: str = "agg") -> None:
    """An aggregation server, whose key server does not answer, and an ad service without ads."""
    serve(
        *(extra, "agg", "serve", "--folder", FOLDER / extra / "aggfolder", "--certs", FOLDER / "certs"),
        *("--identity", "ab" * 32, "--key-server", address(), "--phones", address(), "--analysts", address()),
        *("--metrics", "127.0.0.1:0"),
    )
    serve(
        *(extra, "ads", "serve", "--folder", FOLDER / extra / "adsfolder", "--certs", FOLDER / "certs"),
        *("--phones", address()),
    )


def check_server() -> None:
    """Both servers and a plan."""
    check_keys("server")
    check_agg("server")
    check_analyst("server")


def check_cluster() -> None:
    """A worker on a Ray cluster of this machine."""
    run_python(
        "cluster",
        "from functools import partial\n"
        "from math import sqrt\n"
        "from reticent_sim.engine.backends import RayBackend\n"
        "backend = RayBackend()\n"
        "try:\n"
        "    backend.start(partial, [sqrt])\n"
        "    assert backend.call({0: 16}) == {0: 4}\n"
        "finally:\n"
        "    backend.stop()\n",
    )


CHECKS = {
    "cli": make_certificates,
    "plan": check_plan,
    "analyst": check_analyst,
    "agg": check_agg,
    "keys": check_keys,
    "frames": check_frames,
    "plot": check_plot,
    "postgres": check_postgres,
    "server": check_server,
    "cluster": check_cluster,
}

if __name__ == "__main__":
    os.environ["PYTHONPATH"] = ""
    main()
