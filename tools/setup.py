"""Set up what a tier needs on this machine, once: ``python tools/setup.py TIER``.

Uses the standard library only, because it runs before anything is installed. A stamp in the
virtual environment names the inputs that it was made from, so that a second call returns at once.
System packages come through apt when we are root; otherwise one line says what to install.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MINIMUM_PYTHON = (3, 11)
MINIMUM_JAVA = 17
EXTRAS = {
    "demo": "demo",
    "spark": "spark",
    "test": "dev",
    "bench": "dev",
    "kube": "test-kube",
    "docs": "docs",
    "dist": "dist",
}
LARGEST = "test"
SMALLER = ("demo", "spark", "kube", "docs", "dist")
"""What the largest installs serves these as well."""
WITHOUT_JAVA = ("demo", "docs", "dist")
WITHOUT_SERVERS = ("spark", "docs")
PIP_OF_ANOTHER = (22, 3)
"""The first pip that installs into another environment than its own."""
_WAIT_FOR_APT = ("-o", "DPkg::Lock::Timeout=600")  # another set-up may be installing


class SetupError(Exception):
    """Something that the user has to install or change; the message is the one line to show."""


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def run(command: list[str], *, cwd: Path = ROOT, quiet: bool = True) -> None:
    """Run ``command``; on failure show its output and raise :class:`SetupError`."""
    done = subprocess.run(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        check=False,
    )
    if done.returncode:
        print((done.stdout or "")[-4000:], file=sys.stderr)
        raise SetupError(f"{' '.join(command[:4])} ... ended with exit code {done.returncode}")


def fingerprint(tier: str) -> str:
    digest = hashlib.sha256(f"{tier} {sys.version} {ROOT}".encode())
    for name in ("pyproject.toml", "constraints.txt"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def interpreter(tier: str) -> str:
    """Return what the virtual environment is made of: this Python, or a faster one to measure.

    Images have a Python that was built with its own profile, as those of distributions are. What
    pyenv builds by default is not, and makes a broker cost a third more.
    """
    built = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    if tier != "bench" or "--enable-optimizations" in built or sys.base_prefix == "/usr":
        return sys.executable
    found = "/usr/bin/python3"
    asked = [found, "-c", f"import sys; sys.exit(sys.version_info < {MINIMUM_PYTHON})"]
    if not Path(found).exists() or subprocess.run(asked, check=False).returncode:
        say("this Python was built without optimisation and there is no other: figures are low")
        return sys.executable
    say(f"measuring with {found}: {sys.executable} was built without optimisation")
    return found


def make_venv(tier: str, venv: Path) -> None:
    """Create the virtual environment and install the project with the extra of ``tier``."""
    if sys.version_info < MINIMUM_PYTHON:
        raise SetupError(
            f"Python {MINIMUM_PYTHON[0]}.{MINIMUM_PYTHON[1]} or newer is needed, this is "
            f"{sys.version.split()[0]}: install python3.11 and run `make PYTHON=python3.11 ...`"
        )
    if not (venv / "bin" / "python").exists():
        say(f"creating {venv.name}")
        command = [interpreter(tier), "-m", "venv", "--without-pip", str(venv)]
        run(command)
    say("installing the Python packages (under a minute for the demo, minutes for the rest)")
    wanted = requirements(EXTRAS[tier])
    if pip_here():
        # Both at once: what is downloaded is large, what is built here takes a processor.
        with ThreadPoolExecutor() as side:
            others = [side.submit(install_ours, venv)]
            if tier not in WITHOUT_SERVERS:
                others += [side.submit(build_native, venv), side.submit(fetch_plotly, venv)]
            install(venv, wanted)
            for each in others:
                each.result()
    else:
        install_ours(venv)
        install(venv, wanted)


def requirements(extra: str) -> list[str]:
    """The requirements of the project and one extra; extras of its own are followed."""
    import tomllib  # not at the top: an older Python shall come as far as being told

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, None] = dict.fromkeys(project["dependencies"])
    open_, seen = [extra], set()
    while open_:
        name = open_.pop()
        if name in seen:
            continue
        seen.add(name)
        for each in project["optional-dependencies"][name]:
            own = re.fullmatch(rf"{project['name']}\[([^\]]+)\]", each)
            if own:
                open_ += [part.strip() for part in own[1].split(",")]
            else:
                found[each] = None
    return list(found)


def pip_here() -> bool:
    """Whether the pip of this Python can install into another environment."""
    try:
        major, minor = version("pip").split(".")[:2]
    except PackageNotFoundError:
        return False
    return (int(major), int(minor)) >= PIP_OF_ANOTHER


def install(venv: Path, wanted: list[str], *options: str) -> None:
    python = str(venv / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python] if pip_here() else [python, "-m", "pip"]
    constraints = ["--constraint", "constraints.txt"]
    quietly = ["--quiet", "--disable-pip-version-check", "--no-warn-script-location"]
    run([*pip, "install", *quietly, *constraints, *options, *wanted])


def install_ours(venv: Path) -> None:
    """Install pip and the project itself, without what it requires."""
    python = str(venv / "bin" / "python")
    if not list(venv.glob("lib/python*/site-packages/pip")):
        try:
            run([python, "-m", "ensurepip"])
        except SetupError:
            apt_install(["python3-venv"], "python3-venv (the venv module of Python)")
            run([python, "-m", "ensurepip"])
    install(venv, [], "--no-deps", "--editable", ".")


def build_native(venv: Path) -> None:
    """Compile the broker's kernels; they may be missing, unless the tests are to miss nothing."""
    command = [str(venv / "bin" / "python"), "tools/build_native.py"]
    if os.environ.get("FAILBACK_REQUIRE") == "all":
        command.append("--require")
    run(command, quiet=False)


def fetch_plotly(venv: Path) -> None:
    """Fetch the plots' script; pages do with a larger one, unless the tests miss nothing."""
    command = [str(venv / "bin" / "python"), "tools/setup_plotly.py"]
    if os.environ.get("FAILBACK_REQUIRE") == "all":
        command.append("--require")
    run(command, quiet=False)


def apt_install(packages: list[str], what: str) -> None:
    """Install Debian packages, or say which ones the user has to install."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise SetupError(f"missing: {what}. Install it: apt-get install {' '.join(packages)}")
    say(f"apt-get install {' '.join(packages)}")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for command in (
        [apt, "update", "-qq"],
        [apt, "install", "-y", "-qq", "--no-install-recommends", *_WAIT_FOR_APT, *packages],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode and command[1] == "install":
            print(done.stdout[-2000:] + done.stderr[-2000:], file=sys.stderr)
            raise SetupError(f"missing: {what}. apt-get install {' '.join(packages)} failed")


def java_version() -> int:
    """Return the major version of the Java that Spark and the brokers would use; 0 = none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java or not Path(java).exists():
        return 0
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    return int(found.group(1)) if found else 0


def need_java() -> None:
    if java_version() < MINIMUM_JAVA:
        apt_install(["openjdk-17-jdk-headless"], "Java 17 (Spark and Apache RocketMQ run on it)")


def need_command(commands: tuple[str, ...], package: str, what: str) -> None:
    if not any(shutil.which(command) for command in commands):
        apt_install([package], what)


def set_up(tier: str, venv: Path) -> None:
    stamp = venv / f".failback-{tier}"
    wanted = fingerprint(tier)
    if not stamp.exists() or stamp.read_text() != wanted:
        started = time.monotonic()
        make_venv(tier, venv)
        stamp.write_text(wanted)
        for smaller in SMALLER if tier == LARGEST else ():
            (venv / f".failback-{smaller}").write_text(fingerprint(smaller))
        say(f"Python packages ready after {time.monotonic() - started:.0f} s")
    if tier not in WITHOUT_SERVERS:
        build_native(venv)
        fetch_plotly(venv)
    if tier not in WITHOUT_JAVA:
        need_java()
    if tier in ("test", "bench"):
        need_command(("mvn",), "maven", "Maven (fetches the Apache RocketMQ jars for tests)")
        if os.geteuid() == 0:  # what needs it needs root, too
            need_command(("nft",), "nftables", "nft (rules for packets)")
            need_command(("iptables",), "iptables", "iptables (queues of packets)")
            need_command(("ip",), "iproute2", "ip (network namespaces)")
        need_command(("chromium", "chromium-browser", "google-chrome"), "chromium", "Chromium")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tier", choices=sorted(EXTRAS))
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    options = parser.parse_args()
    try:
        set_up(options.tier, options.venv.resolve())
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
