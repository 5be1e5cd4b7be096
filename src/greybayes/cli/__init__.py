"""The command line: a thin layer of commands over the library.

A command reads its arguments, calls the library and prints what came. To add one, write a function
under `@app.command(epilog=...)` in the file of its kind; errors, exit codes, `--json` and progress
are in `base`. Nothing heavy is imported before a command runs: `greybayes --help` must not wait
for JAX.
"""

# Imported for their commands, in the order in which the help lists them.
from greybayes.cli import models as models

from greybayes.cli import data as data  # isort: skip
from greybayes.cli import estimators as estimators  # isort: skip
from greybayes.cli import tuning as tuning  # isort: skip
from greybayes.cli import diagnosing as diagnosing  # isort: skip
from greybayes.cli import fitting as fitting  # isort: skip
from greybayes.cli import reporting as reporting  # isort: skip
from greybayes.cli import reproducing as reproducing  # isort: skip
from greybayes.cli.base import app as app
from greybayes.cli.base import main as main
