"""Crates of Rust, for machines that reach no crates.io: Debian packages them with their sources."""

from __future__ import annotations

import hashlib
import lzma
import re
import subprocess
import urllib.request
from collections import defaultdict
from pathlib import Path

__all__ = ["CRATES", "debian_crates"]

MIRROR = "https://deb.debian.org/debian/"
PACKAGES = "dists/sid/main/binary-amd64/Packages.xz"
CRATES = "usr/share/cargo/registry"
TIMEOUT = 60.0

Package = dict[str, str]


def debian_crates(crate: str, folder: Path) -> None:
    """Download a crate and all that it depends on. Cargo takes `CRATES` in this folder as a source of crates.

    Raises:
        OSError: The mirror does not answer.
        ValueError: A download is damaged, or Debian does not have the crate.
    """
    for package in _closure(f"librust-{crate}-dev"):
        content = _fetched(package["Filename"])
        if hashlib.sha256(content).hexdigest() != package["SHA256"]:
            raise ValueError(f"{package['Filename']} is damaged")
        archive = folder / Path(package["Filename"]).name
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.write_bytes(content)
        subprocess.run(["dpkg-deb", "--extract", archive, folder], check=True)  # noqa: S603, S607  # sources only
        archive.unlink()


def _closure(name: str) -> list[Package]:
    """The package of this name, and the crates that it needs, directly or not."""
    packages, providers = _index()
    found: dict[str, Package] = {}
    missing = [name]
    while missing:
        name = missing.pop()
        candidates = providers[name]
        if not candidates:
            raise ValueError(f"Debian has no {name}")
        package = packages[name if name in candidates else candidates[0]]
        if package["Package"] in found:
            continue
        found[package["Package"]] = package
        first_choices = (each.split("|")[0].split() for each in package.get("Depends", "").split(","))
        missing += [words[0].partition(":")[0] for words in first_choices if words and words[0].startswith("librust-")]
    return list(found.values())


def _index() -> tuple[dict[str, Package], dict[str, list[str]]]:
    """The packages with crates by their names, and the packages that provide each name."""
    packages: dict[str, Package] = {}
    providers: dict[str, list[str]] = defaultdict(list)
    for paragraph in lzma.decompress(_fetched(PACKAGES)).decode().split("\n\n"):
        if paragraph.startswith("Package: librust-"):
            package = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
            packages[package["Package"]] = package
            for provided in (package["Package"], *package.get("Provides", "").split(",")):
                providers[provided.strip().partition(" ")[0]].append(package["Package"])
    return packages, providers


def _fetched(path: str) -> bytes:
    with urllib.request.urlopen(MIRROR + path, timeout=TIMEOUT) as reply:  # noqa: S310  # a constant address
        content: bytes = reply.read()
    return content
