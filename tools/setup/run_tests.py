#!/usr/bin/env python3
"""Runs every test of the workspace and says at the end what was really used.

`cargo test` alone cannot see that a suite ran no test, that one was ignored, or that
a PostgreSQL major or a store backend was never touched. Each of these fails here.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

MAJORS_NEEDED = {15, 16, 17, 18}
BACKENDS_NEEDED = {"io_uring", "pwrite", "simulated"}

# Suites that need a feature which no other build may have: each is an invocation of its own, in a folder of its own, so
# that no program built with the feature takes the place of one without. Their counts and seeds are shown as they come.
RUNS_APART = {
    "schedules": [
        "cargo", "test", "-p", "walspool-concurrency", "--features", "shuttle", "--target-dir", "target/schedules",
        "--test", "schedules", "--", "--nocapture",
    ],
}

# A test that prints nothing for so long hangs: the run is ended, so that the suite's name is seen.
SILENCE_SECONDS_MAX = 900

RUNNING = re.compile(r"^\s+Running (?:unittests )?(\S+) \((\S+)\)")
DOC_TESTS = re.compile(r"^\s+Doc-tests (\S+)")
RESULT = re.compile(
    r"^test result: \S+\. (\d+) passed; (\d+) failed; (\d+) ignored; \d+ measured; (\d+) filtered out; finished in ([\d.]+)s"
)


class Suite:
    def __init__(self, name, may_be_empty):
        self.name, self.may_be_empty = name, may_be_empty
        self.passed = self.failed = self.ignored = self.filtered = 0
        self.seconds = 0.0
        self.ended = False


class Parser:
    """Reads cargo's lines. A suite is announced, then closes with one result (doc-tests may close with several)."""

    def __init__(self):
        self.suites = []

    def line(self, text):
        if match := RUNNING.match(text):
            source, binary = match.groups()
            crate = re.sub(r"-[0-9a-f]{16}$", "", Path(binary).name)
            kind = "unit" if "unittests" in text else "tests"
            self.suites.append(Suite(f"{crate} ({kind})", may_be_empty=kind == "unit" and source.endswith("main.rs")))
        elif match := DOC_TESTS.match(text):
            self.suites.append(Suite(f"{match[1]} (doc)", may_be_empty=True))
        elif (match := RESULT.match(text)) and self.suites:
            suite = self.suites[-1]
            suite.passed += int(match[1])
            suite.failed += int(match[2])
            suite.ignored += int(match[3])
            suite.filtered += int(match[4])
            suite.seconds += float(match[5])
            suite.ended = True


def run(command, environment, parser):
    """Runs cargo, shows its output as it comes, and ends it when it falls silent."""
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL, text=True, errors="replace", start_new_session=True,
    )
    heard, stalled = [time.monotonic()], threading.Event()

    def watch():
        while process.poll() is None:
            if time.monotonic() - heard[0] > SILENCE_SECONDS_MAX:
                stalled.set()
                os.killpg(process.pid, signal.SIGKILL)
                return
            time.sleep(1)

    threading.Thread(target=watch, daemon=True).start()
    try:
        for text in process.stdout:
            heard[0] = time.monotonic()
            print(text, end="", flush=True)
            parser.line(text.rstrip("\n"))
        return process.wait(), stalled.is_set()
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def read_report(path):
    servers, backends = Counter(), Counter()
    for text in path.read_text().splitlines() if path.exists() else []:
        fact = json.loads(text)
        if "server_version" in fact:
            servers[(fact["major"], fact["server_version"])] += 1
        if "backend" in fact:
            backends[fact["backend"]] += 1
    return servers, backends


def complaints(code, stalled, suites, servers, backends):
    if stalled:
        yield f"no output for {SILENCE_SECONDS_MAX} s: the run was ended in suite {suites[-1].name if suites else '(none)'}"
    elif code != 0:
        yield f"cargo test ended with {code}"
    for suite in suites:
        if not suite.ended:
            yield f"{suite.name} did not come to an end"
        elif suite.passed + suite.failed == 0 and not suite.may_be_empty:
            yield f"{suite.name} ran no test"
        if suite.failed:
            yield f"{suite.name}: {suite.failed} failed"
        if suite.ignored or suite.filtered:
            yield f"{suite.name}: {suite.ignored} ignored, {suite.filtered} filtered out"
    run_names = {suite.name for suite in suites}
    tests = REPOSITORY / "tests"
    in_packages = [file.stem for file in tests.glob("*/tests/*.rs")]
    of_walspool = [file.stem for file in tests.glob("*.rs")] + [file.parent.name for file in tests.glob("*/main.rs")]
    for name in sorted([*of_walspool, *in_packages, *RUNS_APART]):
        if f"{name} (tests)" not in run_names:
            yield f"the suite {name} of tests/ was not run"
    for major in sorted(MAJORS_NEEDED - {major for major, _ in servers}):
        yield f"no PostgreSQL {major} was started"
    for backend in sorted(BACKENDS_NEEDED - set(backends)):
        yield f"the store backend {backend} was not used"


def print_table(suites, servers, backends):
    width = max([len(suite.name) for suite in suites] + [5])
    print(f"\n{'suite':<{width}}  tests  seconds")
    for suite in suites:
        if suite.passed + suite.failed or not suite.may_be_empty:
            print(f"{suite.name:<{width}}  {suite.passed + suite.failed:>5}  {suite.seconds:>7.2f}")
    print("\nPostgreSQL server_version (servers started): ", end="")
    print(", ".join(f"{version} ({count})" for (_, version), count in sorted(servers.items())) or "none")
    print("store backends (uses): ", end="")
    print(", ".join(f"{name} ({count})" for name, count in sorted(backends.items())) or "none")


def main():
    start = time.monotonic()
    subprocess.run([sys.executable, REPOSITORY / "tools/setup/fetch_postgres.py", "all"], check=True, stdout=subprocess.DEVNULL)
    parser = Parser()
    with tempfile.TemporaryDirectory(prefix="walspool-report-") as folder:
        report = Path(folder) / "report.jsonl"
        environment = {**os.environ, "WALSPOOL_TEST_REPORT": str(report), "CARGO_TERM_COLOR": "never"}
        # Programs that tests call by path must be there and current, whichever package they belong to: cargo builds them
        # with the tests. (`cargo build --bins` would compile the common packages twice, with and without test features.)
        code, stalled = run(["cargo", "test", "--workspace", "--no-run"], environment, parser)
        if code == 0:
            code, stalled = run(["cargo", "test", "--workspace", "--no-fail-fast"], environment, parser)
        for command in RUNS_APART.values():
            if not stalled:
                code_apart, stalled = run(command, environment, parser)
                code = code or code_apart
        servers, backends = read_report(report)
    found = list(complaints(code, stalled, parser.suites, servers, backends))
    print_table(parser.suites, servers, backends)
    for complaint in found:
        print(f"FAILED: {complaint}")
    passed, failed = sum(s.passed for s in parser.suites), sum(s.failed for s in parser.suites)
    print(f"{time.monotonic() - start:.0f} s in all")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if found or passed == 0 else 0)


if __name__ == "__main__":
    main()
