#!/usr/bin/env python3
"""Rules of this repository that neither rustfmt nor clippy knows. Prints each breach as FILE:LINE and exits 1."""

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

FILE_LINES_MAX = 450  # "about 400", tests not counted
FUNCTION_LINES_MAX = 90  # "about 70"

# Assertions per function, on average over a folder's own code (no tests, no simulated disk: that is a tool of tests).
# Functions of one plain statement (accessors, conversions, forwards) do not count: there is nothing in them to assert.
ASSERTIONS_MIN = {"segments/src/": 2.0, "spool/src/": 2.0}
ASSERTION = re.compile(r"\b(?:debug_)?assert(?:_eq|_ne)?!\(")
NO_PRODUCT = re.compile(r"/(?:tests|planted)\.rs$|/disk/sim/")

FORBIDDEN = [
    (re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b"), "unfinished work has no place in the tree"),
    (re.compile(r"#\[ig" r"nore"), "no test is passed over"),
    (re.compile(r"(?<![\w.])/(?:work|root|home)/\w"), "a path of somebody's machine"),
]
FOLDERS_WITH_README = ["", "segments", "spool", "replay", "services", "tests", "tests/sim", "tests/concurrency", "tests/physical", "benches", "tools/inspect", "tools/setup", "tools/demo"]
TEXT_ENDINGS = {".rs", ".py", ".md", ".toml", ".sh", ""}


def tracked():
    out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, check=True)
    return [REPOSITORY / name for name in sorted(out.stdout.decode().split("\0")) if name]


def without_tests(lines):
    """Lines before the file's test module; a module that is only named there (`mod tests;`) costs nothing."""
    for number, line in enumerate(lines):
        if line.startswith("#[cfg(test)]") and not re.match(r"(pub )?mod \w+;", lines[number + 1] if number + 1 < len(lines) else ""):
            return lines[:number]
    return lines


def functions(lines):
    """(line, length) of each function, by rustfmt's layout: it ends at the first `}` with the indent of its beginning."""
    for number, line in enumerate(lines):
        if match := re.match(r"(\s*)(?:pub(?:\([a-z]+\))? )?(?:const |async |unsafe )*fn \w", line):
            end = match[1] + "}"
            for last in range(number, len(lines)):
                if lines[last] == end or (last == number and line.endswith(("}", ";"))):
                    yield number + 1, last - number + 1
                    break


def counting_functions(lines):
    """Functions with more than one plain statement at their top level, by rustfmt's layout."""
    count = 0
    for number, length in functions(lines):
        body = lines[number - 1 : number - 1 + length]
        indent = " " * (len(body[0]) - len(body[0].lstrip()) + 4)
        begin = next((at for at, line in enumerate(body) if line.endswith("{")), 0) + 1
        starts = [line for line in body[begin:-1] if line.startswith(indent) and line[len(indent) :][:1] not in " })].?"]
        starts = [line for line in starts if line.strip() and not line.strip().startswith(("//", "#["))]
        branches = bool(starts) and re.match(r"\s*(?:match|if|for|while|loop)\b", starts[0]) is not None
        count += len(starts) > 1 or branches
    return count


def assertion_breaches(sources):
    """`sources` are (name, lines) of Rust files. Prints each folder's ratio; yields the folders that fall short."""
    for folder, least in ASSERTIONS_MIN.items():
        own = [without_tests(lines) for name, lines in sources if name.startswith(folder) and not NO_PRODUCT.search(name)]
        asserted = sum(len(ASSERTION.findall(line)) for lines in own for line in lines if not line.lstrip().startswith("//"))
        counted = max(1, sum(map(counting_functions, own)))
        print(f"tidy: {folder} has {asserted} assertions in {counted} functions of more than one statement: {asserted / counted:.2f} each")
        if asserted < least * counted:
            yield f"{folder}: {asserted / counted:.2f} assertions per function, at least {least} are asked for"


def is_test_file(name):
    return name.startswith("tests/") or "/tests/" in name or name.endswith("_tests.rs")


def rust_breaches(name, lines):
    if is_test_file(name):
        return
    own = without_tests(lines)
    if len(own) > FILE_LINES_MAX:
        yield 1, f"{len(own)} lines before its tests, at most {FILE_LINES_MAX}"
    for number, length in functions(own):
        if length > FUNCTION_LINES_MAX:
            yield number, f"a function of {length} lines, at most {FUNCTION_LINES_MAX}"


def text_breaches(lines):
    for number, line in enumerate(lines, start=1):
        for pattern, reason in FORBIDDEN:
            if pattern.search(line):
                yield number, reason
        if line != line.rstrip():
            yield number, "blanks at the end"


def folder_breaches():
    for folder in FOLDERS_WITH_README:
        if not (REPOSITORY / folder / "README.md").exists():
            yield f"{folder or '.'}: no README.md"
    contents = REPOSITORY / "tests" / "README.md"
    listed = contents.read_text() if contents.exists() else ""
    tests = REPOSITORY / "tests"
    for file in sorted([*tests.glob("*.rs"), *tests.glob("*/main.rs")]):
        name = file.relative_to(tests).as_posix()
        if f"`{name}`" not in listed:
            yield f"tests/README.md: does not list `{name}`"


def main():
    found, rust = list(folder_breaches()), []
    for path in tracked():
        name = path.relative_to(REPOSITORY).as_posix()
        if path.suffix not in TEXT_ENDINGS or not path.is_file() or name.startswith(("tests/golden/", "tests/fuzz/corpus/")):
            continue
        try:
            lines = path.read_text().split("\n")
        except UnicodeDecodeError:
            continue
        if path.suffix == ".rs":
            rust.append((name, lines))
        breaches = list(text_breaches(lines)) + (list(rust_breaches(name, lines)) if path.suffix == ".rs" else [])
        found += [f"{name}:{number}: {reason}" for number, reason in breaches]
    found += assertion_breaches(rust)
    print("\n".join(found) or "tidy: nothing found")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
