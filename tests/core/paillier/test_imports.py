import json
import subprocess
import sys

FOREIGN = {"phe", "reticent_keys", "reticent_client", "scipy"}
CODE = "import json, sys, {module}; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"


def _loaded(module: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", CODE.format(module=module)], check=True, capture_output=True, text=True, timeout=60
    )
    return set(json.loads(run.stdout))


def test_a_phone_loads_nothing_of_the_key_servers() -> None:
    """An app may embed the phone under our licence, and phe has another."""
    assert not _loaded("reticent.paillier") & FOREIGN
    assert _loaded("reticent_keys") & FOREIGN == {"phe", "reticent_keys"}


def test_who_does_not_encrypt_loads_no_arithmetic() -> None:
    assert "gmpy2" not in _loaded("reticent")
