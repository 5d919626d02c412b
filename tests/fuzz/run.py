#!/usr/bin/env python3
"""Builds the fuzz program, runs each target for a time, and writes what it executed to tests/results."""

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
BUILD = REPOSITORY / "target" / "fuzz"
WORK = REPOSITORY / "target" / "fuzz-corpus"

# What cargo-fuzz passes too, without a sanitizer: edges counted in eight bits, their table, and comparisons.
FLAGS = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
]

# Longest input of each target, in bytes: a few groups, or the structure and its first byte.
TARGETS = {
    "scan": 4096, "header": 257, "group": 2048, "footer": 1025, "mark": 512, "cursor": 512, "hold": 512,
    "manifest": 1024, "ledger": 2048, "transaction": 2048,
    "walsender": 512, "wal": 2048, "pieces": 2048, "full": 2048, "captured": 1024,
}
BODIES = ["manifest", "ledger", "transaction", "walsender", "wal", "pieces", "full", "captured"]
INPUTS_MAX = 100
MEMORY_MIB_MAX = 1024


def build(with_bodies):
    version = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    host = re.search(r"host: (\S+)", version)[1]
    environment = {**os.environ, "RUSTFLAGS": " ".join(FLAGS)}
    command = ["cargo", "build", "--quiet", "--release", "--target", host, "--target-dir", str(BUILD)]
    command += [] if with_bodies else ["--no-default-features"]
    subprocess.run(command, cwd=HERE, env=environment, check=True)
    return BUILD / host / "release" / "fuzz"


def run(program, target, arguments):
    environment = {**os.environ, "WALSPOOL_FUZZ_TARGET": target}
    return subprocess.run([str(program), *arguments], cwd=WORK, env=environment, capture_output=True, text=True)


def fuzz(program, target, seconds):
    found, committed = WORK / target, HERE / "corpus" / target
    found.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_len={TARGETS[target]}", f"-max_total_time={seconds}", f"-rss_limit_mb={MEMORY_MIB_MAX}"]
    ran = run(program, target, [*limits, "-print_final_stats=1", f"-artifact_prefix={WORK}/{target}-", str(found), str(committed)])
    executed = re.search(r"stat::number_of_executed_units: (\d+)", ran.stderr)
    coverage = re.findall(r"cov: (\d+)", ran.stderr)
    if ran.returncode != 0 or not executed:
        print(ran.stderr[-6000:], file=sys.stderr)
        sys.exit(f"{target}: the fuzzer found something (the input lies in {WORK})")
    return {"target": target, "seconds": seconds, "executions": int(executed[1]), "edges": int(coverage[-1])}


def keep(program, target):
    """What adds coverage goes into the committed corpus; the smallest ones where there are too many."""
    committed, merged = HERE / "corpus" / target, WORK / f"{target}.merged"
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    result = run(program, target, ["-merge=1", f"-max_len={TARGETS[target]}", str(merged), str(committed), str(WORK / target)])
    if result.returncode != 0:
        sys.exit(f"{target}: inputs could not be merged\n{result.stderr[-2000:]}")
    shutil.rmtree(committed)
    committed.mkdir()
    inputs = sorted(merged.iterdir(), key=lambda path: path.stat().st_size)
    for path in inputs[:INPUTS_MAX]:
        shutil.copy(path, committed / path.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--only", action="append", choices=TARGETS)
    parser.add_argument("--keep", action="store_true", help="minimise what was found into corpus/")
    arguments = parser.parse_args()
    targets = arguments.only or list(TARGETS)
    program = build(any(target in BODIES for target in targets))
    WORK.mkdir(parents=True, exist_ok=True)
    results = []
    for target in targets:
        results.append(fuzz(program, target, arguments.seconds))
        print("{target:<12} {executions:>12} executions in {seconds} s, {edges} edges".format(**results[-1]), flush=True)
        if arguments.keep:
            keep(program, target)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()
    path = REPOSITORY / "tests" / "results" / f"fuzz-{datetime.date.today()}.json"
    path.parent.mkdir(exist_ok=True)
    before = json.loads(path.read_text())["targets"] if path.exists() else []
    before = [one for one in before if one["target"] not in targets]
    path.write_text(json.dumps({"commit": commit, "targets": before + results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
