"""Run commands in this process, as a user would type them."""

from typer.testing import CliRunner

from greybayes.cli import app


def run(*arguments):
    """The command in this process; unexpected exceptions come out."""
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def ok(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def refused(*arguments):
    """The one sentence with which a command refuses its arguments."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("greybayes: ")
    assert result.stderr.count("\n") == 1
    return result.stderr
