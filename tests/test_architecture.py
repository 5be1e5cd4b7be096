"""The shape of the house: imports go one way, and importing the package costs nothing."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import greybayes

ROOT = Path(greybayes.__file__).parent
# From bottom to top; modules on one line may import one another.
ORDER = [
    {"_version", "errors"},
    {
        "_arviz",
        "_configure",
        "_devices",
        "_files",
        "_lanes",
        "_types",
        "affine",
        "continuous",
        "inputs",
        "model",
        "noise",
        "prior",
    }
    | {"record", "record_files", "regression", "structure"},
    {"zoo"},
    {"drawing"},
    {"simulation"},
    {"estimate"},
    {"likelihood"},
    {"amortized", "classical"},
    {"importance", "refining"},
    {"diagnose"},
    {"plots", "report"},
    {"reproduce"},
    {"__main__", "cli", "web"},
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
APART = {("amortized", "classical"), ("classical", "amortized")}
BORDER = {"__main__", "cli", "web"}  # these alone touch arguments and streams
STREAMS = {"argv", "stdin", "stdout", "stderr"}
PICKLES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve"}


def sources() -> dict[str, str]:
    """The text of every module but the table of contents, by dotted name below the package."""
    files = {path.relative_to(ROOT): path.read_text() for path in sorted(ROOT.rglob("*.py"))}
    return {
        ".".join(path.with_suffix("").parts): text
        for path, text in files.items()
        if path != Path("__init__.py")
    }


def imports(module: str, text: str) -> Iterator[str]:
    """Dotted names of all that a module imports, lazily and for type checking too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # One dot is the folder that the module is in.
            home = ["greybayes", *module.split(".")][: -node.level] if node.level else []
            base = ".".join([*home, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def back_edges(texts: dict[str, str]) -> list[str]:
    """Imports that go against the order, in words."""
    found = []
    for module, text in texts.items():
        here = module.split(".")[0]
        level = RANK.get(here, 0)
        for name in imports(module, text):
            package, _, rest = name.partition(".")
            there = rest.split(".")[0]
            if package != "greybayes" or there in (here, "__version__"):
                continue
            # The table of contents reaches everything, so it stands below the border alone.
            rank = RANK.get(there, RANK["cli"])
            if rank > level or (here, there) in APART:
                found.append(f"{module} imports {name}")
    return found


def streams(text: str) -> list[str]:
    """Uses of arguments and streams."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [node.func.id] if node.func.id in ("print", "input") else []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += [f"sys.{node.attr}"] if (node.value.id, node.attr) in _SYS else []
        if isinstance(node, ast.ImportFrom) and node.module == "sys":
            found += [f"sys.{alias.name}" for alias in node.names if alias.name in STREAMS]
    return found


_SYS = {("sys", name) for name in STREAMS}


def pickles(module: str, text: str) -> list[str]:
    """Ways to read code out of a data file."""
    found = [name for name in imports(module, text) if name.split(".")[0] in PICKLES]
    keywords = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.keyword))
    found += [
        "allow_pickle"
        for keyword in keywords
        if keyword.arg == "allow_pickle" and getattr(keyword.value, "value", True)
    ]
    return found


def test_every_module_has_a_place_in_the_order():
    homeless = {module.split(".")[0] for module in sources()} - set(RANK)
    assert not homeless, "give it a place in ORDER, and in DESIGN.md"


def test_imports_go_one_way():
    assert back_edges(sources()) == []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("errors", "from greybayes.model import Model"),
        ("errors", "from . import model"),
        ("zoo.growth", "from ..simulation import simulate"),
        ("simulation", "def f():\n    from greybayes.estimate import Estimate"),
        ("simulation", "if TYPE_CHECKING:\n    import greybayes.amortized.network"),
        ("amortized.training", "from greybayes import classical"),
        ("classical.psem", "from greybayes.amortized import network"),
        ("likelihood.kalman", "import greybayes as gb"),
        ("likelihood.kalman", "from greybayes import simulate"),
    ],
)
def test_an_import_that_goes_back_is_noticed(module, text):
    assert len(back_edges({module: text})) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("simulation", "from greybayes.zoo import get_model\nimport jax"),
        ("zoo.growth", "from . import fir\nfrom ..model import Model"),
        ("amortized.store", "from greybayes import __version__\nfrom greybayes.amortized import x"),
        ("cli", "import greybayes as gb\nfrom greybayes import simulate"),
    ],
)
def test_an_import_that_goes_forward_is_allowed(module, text):
    assert back_edges({module: text}) == []


def test_only_the_border_touches_arguments_and_streams():
    inside = {module: text for module, text in sources().items() if not border(module)}
    assert {module: found for module, text in inside.items() if (found := streams(text))} == {}


def border(module: str) -> bool:
    return module.split(".")[0] in BORDER


@pytest.mark.parametrize(
    "text", ["print(1)", "x = input()", "import sys\nsys.argv[1]", "from sys import stderr"]
)
def test_a_stream_is_noticed(text):
    assert len(streams(text)) == 1


def test_nothing_is_pickled():
    assert {m: found for m, text in sources().items() if (found := pickles(m, text))} == {}


@pytest.mark.parametrize(
    "text", ["import pickle", "from pickle import load", "np.load(file, allow_pickle=True)"]
)
def test_a_pickle_is_noticed(text):
    assert len(pickles("record", text)) == 1
    assert pickles("record", "np.load(file, allow_pickle=False)") == []


IMPORT = """
import sys, time
start = time.perf_counter()
import {name}
seconds = time.perf_counter() - start
heavy = sorted({{"jax", "matplotlib", "numpyro", "numpy", "pandas", "scipy"}} & set(sys.modules))
print(seconds, *heavy)
"""


def imported(name: str) -> tuple[float, list[str]]:
    """The seconds that an import takes in a Python of its own, and what it loads."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT.format(name=name)], capture_output=True, text=True, check=True
    )
    seconds, *heavy = done.stdout.split()
    return float(seconds), heavy


def test_importing_the_package_loads_nothing_heavy_and_is_quick():
    ours = [imported("greybayes") for _ in range(3)]
    jax = [imported("jax") for _ in range(3)]
    assert [heavy for _, heavy in ours] == [[]] * 3
    assert all("jax" in heavy for _, heavy in jax)
    assert min(seconds for seconds, _ in ours) < min(seconds for seconds, _ in jax)
