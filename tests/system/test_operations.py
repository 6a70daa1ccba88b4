"""The files of docs/operations are true: units and containers start and count, and all metrics in them exist."""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from tests import postgres
from tests.parties.waiting import block_until
from tests.system.documents import ROOT
from tests.system.operations import OPERATIONS, RETICENT, Site, Unit, compose_file, scraped, status

slow = pytest.mark.slow  # PostgreSQL, and both servers as processes

NAME = re.compile(r"\b((?:reticent|process)_[a-z_]+)\b(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)="([^"]*)"')


@slow
def test_the_units_start_both_servers_and_postgresql(tmp_path: Path) -> None:
    """With paths, addresses and users of this machine; two processes share the count."""
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    site = Site(tmp_path)
    site.prepare()
    with ExitStack() as stack:
        postgresql = started_units(site, stack)
        keys, agg, other = (site.addresses["", port] for port in (9461, 9471, 9472))
        block_until(lambda: "reticent_query_receipts{" in scraped(agg), "the open query", within=20.0)  # not at once
        exposed = "".join(map(scraped, (keys, agg, other)))
        for path, expressions in named_metrics().items():
            for expression in expressions:
                check_metrics(exposed, expression, path)
        names = {family_of(line) for line in exposed.splitlines() if line.startswith("reticent_")}
        table = set(re.findall(r"^\| `(reticent_\w+)", (OPERATIONS / "README.md").read_text(), re.MULTILINE))
        assert table == names
        postgresql.terminate()
        block_until(lambda: status(agg, "/-/ready") == 503, "the store is away", within=30.0)
        assert status(agg, "/-/healthy") == 200
        assert "\nreticent_store_up 0.0\n" in scraped(agg)


def started_units(site: Site, stack: ExitStack) -> subprocess.Popen[bytes]:
    """Start the units and count through them; returns the process of PostgreSQL."""
    keys, processes = Unit.read("reticent-keys.service"), [Unit.read("reticent-agg@.service", each) for each in "12"]
    state = Path(tempfile.mkdtemp(prefix="operations-"))  # pytest's folders are closed to other users
    stack.callback(shutil.rmtree, state, ignore_errors=True)
    paths = {
        "/opt/reticent/bin/reticent": "reticent",
        "/var/lib/reticent-keys": site.folder / "keys",
        "/var/lib/reticent-agg/": f"{site.folder}/agg-",
        "/etc/reticent/keys/passphrase": site.folder / "passphrase",
        "/etc/reticent/keys/certs": site.certs,
        "/etc/reticent/agg/certs": site.certs,
        "/etc/reticent/agg/identity.pub": site.folder / "keys" / "identity.pub",
        "/run/reticent-postgresql": state,
    }
    postgresql = start_postgresql(state, stack)
    user = {"PGUSER": database_user()}
    for name, unit in (("keys", keys), ("agg-1", processes[0]), ("agg-2", processes[1])):
        [command] = unit.settings["ExecStart"]
        program, *words = site.placed(command.split(), paths)
        assert program == "reticent"
        stack.enter_context(site.running(name, [*RETICENT, *words], unit.environment | user))
        site.wait_until_ready(site.addresses["", {"keys": 9461, "agg-1": 9471, "agg-2": 9472}[name]])
    at = {port: address for (_, port), address in site.addresses.items()}
    site.count(site.folder / "keys", at[7101], at[7211], (at[7201], at[7202]))
    return postgresql


def start_postgresql(state: Path, stack: ExitStack) -> subprocess.Popen[bytes]:
    """The unit of PostgreSQL, as a user who is not root; without the system's users, each caller is trusted."""
    unit = Unit.read("reticent-postgresql.service")
    programs = str(postgres.programs())
    paths = {
        "/usr/lib/postgresql/15/bin": programs,
        "/var/lib/reticent-postgresql": state,
        "/run/reticent-postgresql": state,
        "--auth=peer": "--auth=trust",
    }
    as_user = ["runuser", "-u", database_user(), "--"] if os.geteuid() == 0 else []
    if as_user:
        shutil.chown(state, database_user())
    environment = {**os.environ, **unit.environment}

    def words(key: str) -> list[str]:
        [line] = unit.settings[key]
        for old, new in paths.items():
            line = line.replace(old, str(new))
        return [*as_user, *shlex.split(line)]

    with (state / "log").open("w") as log:
        first = subprocess.run(
            words("ExecStartPre"), check=False, cwd=state, env=environment, stdout=log, stderr=log, timeout=60
        )
        assert first.returncode == 0, (state / "log").read_text()
        process = subprocess.Popen(words("ExecStart"), cwd=state, env=environment, stdout=log, stderr=log)
    stack.callback(process.wait, 60)
    stack.callback(process.terminate)
    block_until(lambda: answers(state), "PostgreSQL")
    return process


def answers(state: Path) -> bool:
    try:
        with psycopg.connect(host=str(state), dbname="postgres", user=database_user()):
            return True
    except psycopg.OperationalError:
        return False


def database_user() -> str:
    """Who runs PostgreSQL: root may not."""
    users = {line.partition(":")[0] for line in Path("/etc/passwd").read_text().splitlines()}
    return ("postgres" if "postgres" in users else "nobody") if os.geteuid() == 0 else getpass.getuser()


@slow
def test_the_containers_commands_start_both_servers(tmp_path: Path) -> None:
    """With the paths of their volumes, and one machine in place of their network."""
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    services = compose_file()["services"]
    site = Site(tmp_path)
    site.prepare()
    with postgres.server().database() as url, ExitStack() as stack:
        put_files(site)
        for name in ("keys", "aggregation-1", "aggregation-2"):
            start_container(site, stack, name, services[name], url)
        health_of_containers(site, services)
        at = site.addresses
        site.count(
            site.folder / "volumes" / "keys",
            at["keys", 7101],
            at["aggregation-1", 7202],
            (at["aggregation-1", 7201], at["aggregation-2", 7201]),
        )
        prometheus = yaml.safe_load((OPERATIONS / "prometheus.yaml").read_text())
        for job in prometheus["scrape_configs"]:
            for target in job["static_configs"][0]["targets"]:
                host, _, port = target.partition(":")
                assert "reticent_contributions" in scraped(at[host, int(port)]) or job["job_name"] == "reticent-keys"


def put_files(site: Site) -> None:
    """What README.md tells the operator to put into etc."""
    for name in ("keys", "aggregation"):
        folder = site.folder / "etc" / name
        folder.mkdir(parents=True)
        (folder / "certs").symlink_to(site.certs)
    shutil.copy(site.folder / "passphrase", site.folder / "etc" / "keys" / "passphrase")
    (site.folder / "etc" / "aggregation" / "identity.pub").symlink_to(site.folder / "volumes" / "keys" / "identity.pub")
    password = site.folder / "etc" / "aggregation" / "pgpass"
    password.touch(mode=0o600)
    password.write_text(f"*:*:*:*:{postgres.PASSWORD}\n")


def start_container(site: Site, stack: ExitStack, name: str, service: dict[str, Any], url: str) -> None:
    database = compose_file()["services"]["postgres"]["environment"]
    given = f"postgresql://{database['POSTGRES_USER']}@postgres/{database['POSTGRES_DB']}"
    here = re.sub(r":[^:@]*@", "@", url)
    paths: dict[str, object] = {given: here}
    for volume in service["volumes"]:
        source, target = volume.split(":")[:2]
        folder = site.folder / source if source.startswith("./") else site.folder / "volumes" / source
        folder.mkdir(parents=True, exist_ok=True)
        paths[target] = folder
    words = site.placed(service["command"], {}, name)
    for old, new in paths.items():
        words = [word.replace(old, str(new)) for word in words]
    environment = {
        key: value.replace("/etc/reticent", str(paths["/etc/reticent"]))
        for key, value in service.get("environment", {}).items()
    }
    stack.enter_context(site.running(name, [*RETICENT, *words], environment))
    metrics = next(address for (host, port), address in site.addresses.items() if host == name and port in {9461, 9462})
    site.wait_until_ready(metrics)


def health_of_containers(site: Site, services: dict[str, Any]) -> None:
    """The health checks of the containers succeed."""
    for name in ("keys", "aggregation-1"):
        kind, program, *words = services[name]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "python")
        subprocess.run([sys.executable, *site.placed(words, {}, name)], check=True, timeout=60)


def named_metrics() -> dict[str, list[str]]:
    """The expressions of the dashboard and of the alerts."""
    dashboard = json.loads((OPERATIONS / "dashboard.json").read_text())
    alerts = yaml.safe_load((OPERATIONS / "alerts.yaml").read_text())
    return {
        "dashboard.json": [each["expr"] for panel in dashboard["panels"] for each in panel["targets"]],
        "alerts.yaml": [rule["expr"] for group in alerts["groups"] for rule in group["rules"]],
    }


def check_metrics(exposed: str, expression: str, path: str) -> None:
    """Each series that an expression names is exposed, with the values of the labels that it selects."""
    assert expression.count("(") == expression.count(")"), expression
    found = NAME.findall(expression)
    assert found or "up{" in expression, f"{path}: {expression}"
    for name, labels in found:
        wanted = [f'{key}="{value}"' for key, value in LABEL.findall(labels) if key != "job"]
        lines = [line for line in exposed.splitlines() if re.match(rf"{name}[{{ ]", line)]
        assert any(all(each in line for each in wanted) for line in lines), f"{path}: {name}{{{labels}}}"


def family_of(line: str) -> str:
    return re.sub(r"_(total|bucket|count|sum)$", "", re.split(r"[{ ]", line)[0])


def test_each_alert_is_explained() -> None:
    alerts = yaml.safe_load((OPERATIONS / "alerts.yaml").read_text())
    names = [rule["alert"] for group in alerts["groups"] for rule in group["rules"]]
    page = (OPERATIONS / "README.md").read_text()
    assert re.findall(r"^\| `(Reticent\w+)`", page, re.MULTILINE) == names


def test_the_units_are_confined() -> None:
    for path in (OPERATIONS / "systemd").iterdir():
        settings = Unit.read(path.name).settings
        assert settings["NoNewPrivileges"] == ["yes"]
        assert settings["ProtectSystem"] == ["strict"]
        assert settings["CapabilityBoundingSet"] == [""]
        assert settings["User"] != ["root"]
    keys = Unit.read("reticent-keys.service").settings  # its memory, which holds the keys, stays off the disk
    assert keys["LimitCORE"] == keys["MemorySwapMax"] == ["0"]


def test_the_image_installs_extras_that_exist() -> None:
    """No engine for containers is needed to see this; the commands are run by another test."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    image = (OPERATIONS / "Dockerfile").read_text()
    services = compose_file()["services"]
    built = [service["build"] for service in services.values() if "build" in service]
    assert len(built) == 3
    for build in built:
        assert set(build["args"]["EXTRAS"].split(",")) <= set(extras)
        assert (OPERATIONS / build["context"] / build["dockerfile"]).resolve() == OPERATIONS / "Dockerfile"
    assert "reticent[${EXTRAS}]" in image
    assert 'ENTRYPOINT ["reticent"]' in image
    assert re.search(r"^USER reticent$", image, re.MULTILINE)
    script = re.search(r"sed -n '(.*)' ", image)
    assert script is not None
    lock = (ROOT / "requirements.lock").read_text()
    pinned = subprocess.run(["sed", "-n", script[1]], input=lock, capture_output=True, text=True, check=True).stdout
    assert re.search(r"^prometheus-client==[\d.]+$", pinned, re.MULTILINE)
    for service in services.values():
        if "build" in service:
            assert service["cap_drop"] == ["ALL"]
            assert service["read_only"] is True
