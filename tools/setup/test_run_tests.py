"""The test runner must be able to say no. Run by `make lint`."""

import unittest
from collections import Counter

from run_tests import BACKENDS_NEEDED, Parser, complaints

OUTPUT = """\
     Running unittests src/lib.rs (target/debug/deps/spool-2c956b35ce6585c0)
test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.50s
     Running tests/store/main.rs (target/debug/deps/store-2c956b35ce6585c1)
test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 8.34s
     Running unittests src/main.rs (target/debug/deps/walspool_inspect-2c956b35ce6585c2)
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests setup
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.25s
"""
SERVERS = Counter({(15, "15.19"): 1, (16, "16.15"): 2, (17, "17.11"): 1, (18, "18.6"): 4})
BACKENDS = Counter(dict.fromkeys(BACKENDS_NEEDED, 1))


def parsed(output=OUTPUT):
    parser = Parser()
    for line in output.splitlines():
        parser.line(line)
    return parser.suites


def found(output=OUTPUT, code=0, stalled=False, servers=SERVERS, backends=BACKENDS):
    all_found = complaints(code, stalled, parsed(output), servers, backends)
    # The repository's own suites are not in this output.
    return [text for text in all_found if not text.startswith("the suite ")]


class RunnerTest(unittest.TestCase):
    def test_suites_are_read(self):
        suites = {suite.name: (suite.passed, round(suite.seconds, 2)) for suite in parsed()}
        expected = {"spool (unit)": (7, 0.5), "store (tests)": (5, 8.34), "walspool_inspect (unit)": (0, 0.0), "setup (doc)": (2, 0.25)}
        self.assertEqual(suites, expected)

    def test_a_good_run_has_no_complaint(self):
        self.assertEqual(found(), [])

    def test_failures_show(self):
        self.assertIn("spool (unit): 1 failed", found(OUTPUT.replace("7 passed; 0 failed", "6 passed; 1 failed"), code=101))

    def test_ignored_and_filtered_tests_show(self):
        self.assertEqual(found(OUTPUT.replace("7 passed; 0 failed; 0 ign", "7 passed; 0 failed; 2 ign")), ["spool (unit): 2 ignored, 0 filtered out"])
        self.assertEqual(len(found(OUTPUT.replace("0 filtered", "3 filtered", 1))), 1)

    def test_an_empty_suite_shows(self):
        self.assertEqual(found(OUTPUT.replace("5 passed", "0 passed")), ["store (tests) ran no test"])

    def test_a_suite_without_an_end_shows(self):
        cut = "\n".join(OUTPUT.splitlines()[:3])
        self.assertIn("store (tests) did not come to an end", found(cut))

    def test_a_missing_server_or_backend_shows(self):
        servers = Counter({key: count for key, count in SERVERS.items() if key[0] != 16})
        self.assertEqual(found(servers=servers), ["no PostgreSQL 16 was started"])
        for backend in BACKENDS_NEEDED:
            rest = Counter({name: 1 for name in BACKENDS_NEEDED if name != backend})
            self.assertEqual(found(backends=rest), [f"the store backend {backend} was not used"])

    def test_a_stalled_run_shows(self):
        self.assertIn("no output for", found(stalled=True)[0])

    def test_a_suite_of_the_repository_that_did_not_run_shows(self):
        texts = list(complaints(0, False, parsed(), SERVERS, BACKENDS))
        self.assertIn("the suite kill_restart of tests/ was not run", texts)
        # One of a package in tests/, and one that is run apart.
        self.assertIn("the suite sigbus of tests/ was not run", texts)
        self.assertIn("the suite schedules of tests/ was not run", texts)


if __name__ == "__main__":
    unittest.main()
