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

    own = Path(__file__).resolve()

    def git(*arguments: str) -> str:
        run = ["git", "-C", str(own.parent), *arguments]
        return subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", own.name)  # Not a repository that we merely lie in.
        top = Path(git("rev-parse", "--show-toplevel"))
        inside = results.resolve().is_relative_to(top)
        but = [f":(exclude){results.resolve()}"] if inside else []
        changed = git("status", "--porcelain", "-uno", "--", ":/", *but)
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (FileNotFoundError, subprocess.CalledProcessError):
        return ""
