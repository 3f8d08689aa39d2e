"""Exit codes, and the one line that a user sees instead of a traceback."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, ParamSpec, TypeVar

import typer

from failback.common.text import install, visible, where_and_why
from failback.protocol.errors import (
    BrokerError,
    ConfigError,
    FailbackError,
    RemotingConnectError,
    RemotingError,
    UnreadableAnswer,
)

PASS: Final = 0
FAIL: Final = 1
USER_ERROR: Final = 2
INCONCLUSIVE: Final = 3
REFUSED: Final = 4
NOT_HEALED: Final = 5

EXTRAS: Final = {
    "aiohttp": "operator",
    "cel": "operator",
    "confluent_kafka": "compare",
    "chaoslib": "chaos",
    "chaostoolkit": "chaos",
    "fastapi": "analytics",
    "httptools": "analytics",
    "jinja2": "analytics",
    "javaproperties": "broker",
    "jsonschema": "analytics",
    "kopf": "operator",
    "kubernetes": "operator",
    "numpy": "analytics",
    "pandas": "spark",
    "plotly": "analytics",
    "prometheus_client": "broker",
    "psutil": "operator",
    "urllib3": "operator",
    "pyarrow": "analytics",
    "pydantic": "operator",
    "pyspark": "spark",
    "redis": "compare",
    "ruamel": "operator",
    "uvicorn": "analytics",
    "uvloop": "broker",
}
"""Top-level module → the extra of failback that installs it."""

# By name, because the package may not be installed.
_CODES: Final = {
    "GuardRefused": REFUSED,
    "NotHealed": NOT_HEALED,
    "TargetError": INCONCLUSIVE,
    "Aborted": INCONCLUSIVE,
    "RunFolderError": USER_ERROR,
}
_OF_THE_API_SERVER: Final = {400: USER_ERROR, 403: REFUSED, 404: FAIL, 409: FAIL, 422: USER_ERROR}
"""HTTP status → exit code; any other leaves what was asked unanswered."""
_ERRNO: Final = re.compile(r"\[Errno -?\d+\] ")
_OF_A_PATH: Final = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
_LONGEST: Final = 300
_WORST_CODES_FIRST: Final = (NOT_HEALED, USER_ERROR, REFUSED, FAIL, INCONCLUSIVE, PASS)

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class Debug:
    """Whether `--debug` was given: one switch of the process, set by the root command."""

    on: bool = False


def guarded(command: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Turn what ``command`` raises into one line on stderr and an exit code."""

    @functools.wraps(command)
    def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        try:
            return command(*args, **kwargs)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            fail("interrupted")
            raise typer.Exit(INCONCLUSIVE) from None
        except BrokenPipeError:  # the reader of our output left, as `head` does
            sys.stderr.close()
            raise typer.Exit(PASS) from None
        except Exception as error:
            # The boundary of the program: everything becomes one line here.
            if Debug.on:
                raise
            line, code = explain(error)
            fail(line)
            raise typer.Exit(code) from None

    return run


def worst(codes: Iterable[int]) -> int:
    """Return the exit code of several runs: the one that most needs a person."""
    found = set(codes)
    return next((code for code in _WORST_CODES_FIRST if code in found), max(found, default=PASS))


def fail(line: str) -> None:
    """Print an error; each of several on a line of its own."""
    for each in line.split("\n"):
        print(f"error: {visible(each)}", file=sys.stderr)


def explain(error: Exception) -> tuple[str, int]:
    """Return the line and the exit code of an exception."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return missing_extra(error.name), USER_ERROR
    if isinstance(error, ConfigError):
        return str(error), USER_ERROR
    exit_code = getattr(error, "exit_code", None)
    if isinstance(exit_code, int):
        return str(error), exit_code
    if type(error).__name__ == "ApiError":
        return _of_the_api_server(error)
    if isinstance(error, RemotingConnectError):
        return f"cannot reach {error.addr}: {error.why}", INCONCLUSIVE
    if isinstance(error, (RemotingError, UnreadableAnswer)):
        return str(error), INCONCLUSIVE
    if isinstance(error, BrokerError):
        said = error.remark.strip().partition("\n")[0] or f"code {error.code}"
        return f"{error.addr} refused: {said}", FAIL
    if isinstance(error, FailbackError):
        return str(error), _CODES.get(type(error).__name__, FAIL)
    if isinstance(error, UnicodeEncodeError) and _is_no_text(error.object):
        text = f'"{_shortened(error.object)}" is no text: it has bytes that are no UTF-8'
        return text, USER_ERROR
    if isinstance(error, OSError) and (error.errno or error.filename):
        code = USER_ERROR if isinstance(error, _OF_A_PATH) and error.filename else INCONCLUSIVE
        return where_and_why(error), code
    text = f"{type(error).__name__}: {_shortened(str(error))}"
    return f"internal error: {text} (failback --debug shows where)", INCONCLUSIVE


def _is_no_text(text: str) -> bool:
    """Whether a word of the command line has bytes that Python could not decode."""
    return any("\udc80" <= each <= "\udcff" for each in text)


def _of_the_api_server(error: Any) -> tuple[str, int]:
    """Return what the API server said when it refused, or that it did not answer."""
    if error.reason == "NotConfigured":
        is_nowhere = "No configuration found" in error.message
        why = "no kubeconfig names one, and this is no pod" if is_nowhere else error.message
        return f"no Kubernetes API server: {_shortened(why)}", USER_ERROR
    if not error.code:
        why = _shortened(_ERRNO.split(error.message)[-1])
        return f"cannot reach the API server: {why[:1].lower()}{why[1:]}", INCONCLUSIVE
    said = _shortened(error.message or error.reason)
    return f"the API server refused: {said}", _OF_THE_API_SERVER.get(error.code, INCONCLUSIVE)


def _shortened(text: str) -> str:
    """Return the first line of a message, without the plans and stacks that engines append."""
    first = text.strip().partition("\n")[0]
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}..."


def missing_extra(module: str) -> str:
    """Return the line for a module that is not installed."""
    extra = EXTRAS.get(module.partition(".")[0])
    if extra is None:
        return f"the Python module {module} is not installed"
    return f"this needs the extra {extra}: {install(extra)} ({module} is missing)"
