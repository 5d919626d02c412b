#!/usr/bin/env python3
"""Builds the peers (release, minutes the first time) and prints where their program lies.

RocksDB's bindings are made by libclang. Where the machine has none, the pinned one from PyPI is fetched beside the servers.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
LIBCLANG = "18.1.1"
LIBCLANG_SHA256 = "c533091d8a3bbf7460a00cb6c1a71da93bffe148f172c7d03b1c31fbf8aa2a0b"


def fail(text):
    print(f"peers: {text}", file=sys.stderr)
    sys.exit(1)


def fetched_libclang():
    servers = Path(os.environ.get("WALSPOOL_SERVERS_DIR") or REPOSITORY / ".servers").resolve()
    folder = servers / f"libclang-{LIBCLANG}"
    if (folder / "libclang.so").exists():
        return folder
    servers.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=servers) as scratch:
        arguments = ["download", "-q", "--no-deps", "--only-binary=:all:", "--platform", "manylinux2010_x86_64"]
        command = [sys.executable, "-m", "pip", *arguments, "-d", scratch, f"libclang=={LIBCLANG}"]
        if subprocess.run(command).returncode:
            fail("libclang could not be fetched; install it (Debian: libclang-dev) and set LIBCLANG_PATH")
        wheel = next(Path(scratch).glob("*.whl"))
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != LIBCLANG_SHA256:
            fail(f"{wheel.name} is not the pinned one")
        unpacked = Path(scratch) / "unpacked"
        unpacked.mkdir()
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith("/libclang.so"))
            (unpacked / "libclang.so").write_bytes(archive.read(name))
        if not folder.exists():
            unpacked.rename(folder)
    return folder


def environment():
    found = dict(os.environ)
    installed = [path for pattern in ("llvm-*/lib/libclang*.so*", "*/libclang*.so*") for path in Path("/usr/lib").glob(pattern)]
    if "LIBCLANG_PATH" not in found and not [path for path in installed if "cpp" not in path.name]:
        found["LIBCLANG_PATH"] = str(fetched_libclang())
        # That one comes without its own headers; the C compiler's do.
        headers = subprocess.run(["cc", "-print-file-name=include"], capture_output=True, text=True, check=True).stdout.strip()
        found["BINDGEN_EXTRA_CLANG_ARGS"] = f"-I{headers}"
    return found


def is_current(program):
    """Whether it is younger than all that it is made of. Cargo would compile RocksDB anew where libclang lies elsewhere."""
    sources = [HERE / "Cargo.toml", HERE / "Cargo.lock", *HERE.glob("src/*.rs")]
    return program.exists() and program.stat().st_mtime > max(source.stat().st_mtime for source in sources)


def main():
    target = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target") / "peers"
    program = target / "release" / "walspool-peers"
    if is_current(program):
        print(program)
        return
    command = ["cargo", "build", "--release", "--locked", "--manifest-path", str(HERE / "Cargo.toml"), "--target-dir", str(target)]
    if subprocess.run(command, env=environment(), stdout=sys.stderr).returncode:
        fail("the peers could not be built")
    print(program)


if __name__ == "__main__":
    main()
