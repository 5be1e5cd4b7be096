"""Where a figure comes from: the commit and the machine, in words that mean something elsewhere."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, Any]:
    """The processor, its cores, and the versions that decide speed and bits.

    >>> sorted(describe_machine())
    ['cores', 'cpu', 'jax', 'numpy', 'python']
    """
    cpu = Path("/proc/cpuinfo")
    rows = cpu.read_text().splitlines() if cpu.exists() else []
    names = [row for row in rows if row.startswith("model name")]
    return {
        "cpu": names[0].split(":")[1].strip() if names else platform.processor(),
        "cores": len(names) or None,
        "python": platform.python_version(),
        "jax": version("jax"),
        "numpy": version("numpy"),
    }


def describe_commit(results: Path) -> str:
    """The commit of the source, marked where it differs from it in more than results.

    Empty where the package does not run from a repository.
    """

    def git(*arguments: str) -> str:
        run = ["git", "-C", str(Path(__file__).parent), *arguments]
        try:
            done = subprocess.run(run, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return ""
        return done.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return ""
    changed = git("status", "--porcelain", "-uno", "--", ":/", f":(exclude){results.resolve()}")
    return commit + ("-dirty" if changed else "")
