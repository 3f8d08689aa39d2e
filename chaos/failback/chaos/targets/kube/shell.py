"""Containers of Apache's images: a shell, and a JVM below the scripts that start it. Pure.

The pod's containers share one process namespace, so the JVM is not PID 1 and SIGKILL reaches it.
Its pid and start time are compared once more in the script that signals it. How it died is only
told by its container's exit code, because the start scripts end as the JVM does. The container's
command waits while the hold file exists: the broker starts only after it is gone.
"""

from __future__ import annotations

import uuid
from typing import Final

from failback.chaos.cluster.view import LIMIT_SECONDS
from failback.chaos.targets.kube.inside import Child, Inside

HOLD_FILE: Final = "/run/failback/hold"
MAIN_CLASS: Final = "org.apache.rocketmq.broker.BrokerStartup"
_STATE, _START_TICKS = 0, 19  # fields 3 and 22 of /proc/PID/stat, counted from the third

# The start scripts have the class on their command line as well; only the JVM is called java.
_STATUS: Final = """\
if [ -e "$1" ]; then echo held; else echo free; fi
for process in /proc/[0-9]*; do
  { read -r name <"$process/comm"; } 2>/dev/null && [ "$name" = java ] || continue
  tr '\\0' '\\n' <"$process/cmdline" 2>/dev/null | grep -qx "$2" || continue
  cat "$process/stat" 2>/dev/null
done
exit 0
"""
_KILL: Final = """\
[ "$2" -gt 1 ] || { echo "the broker is PID 1, which SIGKILL does not reach" >&2; exit 4; }
{ read -r line <"/proc/$2/stat"; } 2>/dev/null || { echo "process $2 has ended" >&2; exit 1; }
signal=$1 process=$2 expected=$3
shift 3
[ "$signal" != 19 ] || watch "$@"  # SIGSTOP
set -- ${line##*) }
[ "${20}" = "$expected" ] || { echo "process $process began at ${20}, not $expected" >&2; exit 4; }
echo "failback-chaos: signal $signal to $process:$expected" >&2
kill "-$signal" "$process"
"""
_HOLD: Final = '[ -e "$1" ] || printf "%s\\n" "$2" >"$1"\n'
_RELEASE: Final = 'rm -f "$1" "$1.watch"'
# The harness may be killed. A process in the container ends the hold and the stop then, unless a
# renewal has put another one in its place. It lets go of the exec session's pipes.
_WATCH: Final = """\
watch() {
  printf '%s\\n' "$4" >"$1.watch"
  (
    trap '' HUP
    sleep "$3"
    { read -r last <"$1.watch"; } 2>/dev/null && [ "$last" = "$4" ] || exit 0
    rm -f "$1" "$1.watch"
    for process in /proc/[0-9]*; do
      { read -r name <"$process/comm"; } 2>/dev/null && [ "$name" = java ] || continue
      tr '\\0' '\\n' <"$process/cmdline" 2>/dev/null | grep -qx "$2" || continue
      kill -CONT "${process#/proc/}"
    done
  ) >/dev/null 2>&1 </dev/null &
}
"""


class ShellKeeper:
    """Asks a shell."""

    engine = "apache"
    keeps_deaths = False

    def status(self) -> list[str]:
        return _words(_STATUS, HOLD_FILE, MAIN_CLASS)

    def read_status(self, answer: bytes) -> Inside:
        first, *processes = answer.decode("utf-8", "replace").splitlines() or [""]
        if first not in ("held", "free"):
            raise ValueError(f"neither held nor free: {first!r}")
        if len(processes) > 1:
            raise ValueError(f"{len(processes)} brokers run in it")
        return Inside(_child(processes[0]) if processes else None, first == "held")

    def kill(self, signum: int, pid: int, ticks: int) -> list[str]:
        return _words(_WATCH + _KILL, str(signum), str(pid), str(ticks), *_watched())

    def read_receipt(self, answer: bytes) -> None:
        """Nothing: a shell cannot say when."""

    def hold(self, by: str) -> list[str]:
        return _words(f'{_WATCH}{_HOLD}shift 2\nwatch "$@"', HOLD_FILE, by, *_watched())

    def renew(self) -> list[str]:
        """Put another watch in the place of the last: the container may have been restarted."""
        return _words(f'{_WATCH}watch "$@"', *_watched())

    def release(self) -> list[str]:
        return _words(_RELEASE, HOLD_FILE)


def _watched() -> tuple[str, ...]:
    return HOLD_FILE, MAIN_CLASS, str(LIMIT_SECONDS), uuid.uuid4().hex


def _words(script: str, *arguments: str) -> list[str]:
    return ["sh", "-c", script, "failback-chaos", *arguments]


def _child(line: str) -> Child:
    """Read a line of ``/proc/PID/stat``; the name in parentheses may hold anything."""
    fields = line.rpartition(")")[2].split()
    try:
        return Child(int(line.split(" ", 1)[0]), int(fields[_START_TICKS]), fields[_STATE])
    except (ValueError, IndexError) as error:
        raise ValueError(f"not a line of /proc/PID/stat: {line!r}") from error
