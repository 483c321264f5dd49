"""Tests of scripts/compliance on small trees made for the purpose."""

import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import tempfile
import types
import unittest

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "compliance"

REQUIREMENTS = """# Requirements

| Prefix | Document | Rows |
|---|---|---|
| AB | one | 5 |

| ID | Level | Requirement | Test |
|---|---|---|---|
| AB-1.2-01 | MUST | first | U. |
| AB-1.2-02 | MUST NOT | second | U. |
| AB-1.2-03 | MAY | third \\| with a bar | U. |
| AB-C.1-01 | SHOULD | fourth | U. |
| ABv2-3-01 | NOT REQUIRED | fifth | U. |
| ABv2-4-01 | REQUIRED | sixth | U. |

| No | Question | Reading |
|---|---|---|
| A-01 | what? | that. |
"""

EXCEPTIONS = """# Exceptions

| ID | Reason |
|---|---|
| AB-C.1-01 | not needed |

## Not yet built

| ID | What it belongs to |
|---|---|
| ABv2-4-01 | the second version |
"""

# Both MUST rows are met.
CODE = "// AB-1.2-01, AB-1.2-02\npub fn code() {}\n"
PROOF = """
/// AB-1.2-01
#[test]
fn first() {}

#[test]
fn second() {
    // AB-1.2-02
}
"""
LOG = """   Compiling dataplane
     Running unittests src/lib.rs (target/debug/deps/dataplane-0123456789abcdef)

running 2 tests
test inner::unit ... ok
test result: ok. 1 passed; 0 failed

     Running tests/stack/main.rs (/elsewhere/debug/deps/stack-0123456789abcdef)
test first ... ok
test second ... ok
test folder::third - should panic ... ok
test packet_scripts::closing ... ok
"""


def load() -> types.ModuleType:
    loader = importlib.machinery.SourceFileLoader("compliance", str(PROGRAM))
    spec = importlib.util.spec_from_loader("compliance", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


class ComplianceTest(unittest.TestCase):
    def setUp(self) -> None:
        self.compliance = load()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("docs/requirements.md", REQUIREMENTS)
        self.write("docs/exceptions.md", EXCEPTIONS)
        self.write("dataplane/Cargo.toml", '[package]\nname = "dataplane"\n')
        self.write("dataplane/src/lib.rs", CODE)
        self.write("dataplane/tests/stack/main.rs", PROOF)
        self.write("results/tests.log", LOG)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def run_program(self, *arguments: str) -> tuple[int, str, str]:
        """Returns the exit status and what was printed to each stream."""
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            status = self.compliance.main(list(arguments), self.root)
        return status, output.getvalue(), errors.getvalue()

    def check(self) -> tuple[int, str, str]:
        return self.run_program("--check", "--results", str(self.root / "results"))

    def figures(self) -> dict[str, list[int]]:
        """Returns the figures of every row of the summary, by its prefix."""
        _, output, _ = self.run_program("--results", str(self.root / "results"))
        lines = [line.split() for line in output.splitlines()[1:]]
        return {words[0]: [int(word) for word in words[1:]] for words in lines}

    def states(self, prefix: str) -> dict[str, str]:
        _, output, _ = self.run_program("--list", prefix, "--results", str(self.root / "results"))
        lines = [line for line in output.splitlines() if line.startswith(prefix + "-")]
        return {line.split()[0]: line[17:27].strip() for line in lines}

    def assert_problem(self, *expected: str) -> None:
        status, _, errors = self.check()
        self.assertEqual(status, 1)
        for text in expected:
            self.assertIn(text, errors)
        self.assertEqual(self.run_program()[0], 0, "only --check fails")

    def test_a_proven_tree_passes_and_is_counted(self) -> None:
        self.assertEqual(self.check()[::2], (0, ""))
        figures = {"AB": [4, 3, 2, 0, 0, 1, 1, 0], "ABv2": [2, 1, 0, 0, 0, 1, 0, 1]}
        self.assertEqual(self.figures(), {**figures, "all": [6, 4, 2, 0, 0, 2, 1, 1]})
        expected = {"AB-1.2-01": "proven", "AB-1.2-02": "proven", "AB-1.2-03": "neither"}
        self.assertEqual(self.states("AB"), {**expected, "AB-C.1-01": "excepted"})
        self.assertEqual(self.states("ABv2"), {"ABv2-3-01": "neither", "ABv2-4-01": "not built"})

    def test_code_alone_and_tests_alone_prove_nothing(self) -> None:
        self.write("dataplane/tests/stack/main.rs", "/// AB-1.2-01\n#[test]\nfn first() {}\n")
        self.assert_problem("AB-1.2-02 (MUST NOT) is not proven: code only, cited at dataplane/src/lib.rs:1")
        self.write("dataplane/tests/stack/main.rs", PROOF)
        self.write("dataplane/src/lib.rs", "// AB-1.2-01\npub fn code() {}\n")
        self.assert_problem("AB-1.2-02 (MUST NOT) is not proven: test only")

    def test_what_has_not_run_and_passed_proves_nothing(self) -> None:
        for change in [
            ("test second ... ok\n", ""),
            ("test second ... ok\n", "test second ... FAILED\n"),
            ("test second ... ok\n", "test second ... ignored\n"),
            ("test second ... ok\n", "test second: test\n"),
            ("test second ... ok\n", "test second ... ok\ntest second ... FAILED\n"),
            # The same name in another binary.
            (
                "Running tests/stack/main.rs (/elsewhere/debug/deps/stack-",
                "Running tests/other.rs (deps/other-",
            ),
            ("     Running tests/stack/main.rs", "   Doc-tests dataplane\n"),
        ]:
            with self.subTest(change=change):
                self.assertIn(change[0], LOG)
                self.write("results/tests.log", LOG.replace(*change))
                self.assert_problem(
                    "stack/main.rs:8: AB-1.2-02: stack second is not among the tests that passed",
                    "AB-1.2-02 (MUST NOT) is not proven: code only",
                )

    def test_several_logs_are_read(self) -> None:
        head, rest = LOG.split("test second ... ok\n")
        self.write("results/tests.log", head)
        self.write(
            "results/more.log",
            "     Running tests/stack/main.rs (deps/stack-0123456789abcdef)\ntest second ... ok\n" + rest,
        )
        self.assertEqual(self.check()[0], 0)

    def test_where_an_id_stands_decides_what_it_proves(self) -> None:
        test = "#[test]\nfn second() {}\n"
        main = PROOF.replace("// AB-1.2-02", "")
        for path, text, expected in [
            # At a test: in it, directly above it, among its attributes, in a macro, in a string.
            ("stack/main.rs", "// AB-1.2-02\n" + test, "proven"),
            ("stack/main.rs", "#[test]\n/// AB-1.2-02\n#[should_panic]\nfn second() {}", "proven"),
            ("stack/main.rs", '#[test]\nfn second() {\n[0; 3]; { }\n x("{ AB-1.2-02");\n}', "proven"),
            ("stack/main.rs", "proptest! {\n// AB-1.2-02\n#[test]\nfn second(a in 0..3) {}\n}", "proven"),
            ("stack/main.rs", "#[tokio::test]\nasync fn second() {\n/* AB-1.2-02 */\n}", "proven"),
            # Elsewhere.
            ("stack/main.rs", "//! AB-1.2-02\n" + test, "code only"),
            ("stack/main.rs", "// AB-1.2-02\n\n" + test, "code only"),
            ("stack/main.rs", test + "// AB-1.2-02\n", "code only"),
            ("stack/main.rs", "/// AB-1.2-02\nfn helper() {}\n" + test, "code only"),
            ("stack/main.rs", "fn helper() {\n// AB-1.2-02\n}\n" + test, "code only"),
            ("stack/main.rs", "/// AB-1.2-02\nmod x {\n" + test + "}\n" + test, "code only"),
            # In a file of its own, by its name and by a path; a test that is another's.
            ("stack/folder.rs", "/// AB-1.2-02\n#[test]\nfn third() {}", "proven"),
            ("stack/folder.rs", "mod inner {\n/// AB-1.2-02\n#[test]\nfn third() {}\n}", "code only"),
            ("stack/folder/mod.rs", "/// AB-1.2-02\n#[test]\nfn third() {}", "proven"),
            ("elsewhere.rs", "/// AB-1.2-02\n#[test]\nfn first() {}", "code only"),
            # Packet scripts, by the test that plays their folder.
            ("scripts/closing/a.script", "# AB-1.2-02\n> S", "proven"),
            ("scripts/opening/a.script", "# AB-1.2-02\n> S", "code only"),
            # Tests of the judges.
            ("stack/packet_scripts.rs", "/// AB-1.2-02\n#[test]\nfn closing() {}", "code only"),
        ]:
            with self.subTest(path=path, text=text):
                kept = main if "fn second" not in text else main.split("#[test]\nfn second")[0]
                declared = "mod folder;\nmod packet_scripts;\n" if path != "stack/main.rs" else ""
                self.write("dataplane/tests/stack/main.rs", declared + kept + (text if not declared else ""))
                if declared:
                    self.write("dataplane/tests/" + path, text)
                self.assertEqual(self.states("AB")["AB-1.2-02"], expected)
                if declared:
                    (self.root / "dataplane/tests" / path).unlink()

    def test_modules_are_followed_as_the_compiler_does(self) -> None:
        log = LOG.replace("test inner::unit", "test inner::tests::unit")
        self.write("results/tests.log", log)
        self.write("dataplane/tests/stack/main.rs", PROOF.replace("AB-1.2-02", ""))
        unit = "// AB-1.2-02\n#[test]\nfn unit() {}\n"
        moved = '#[path = "other_tests.rs"]\nmod tests;\n'
        self.write("dataplane/src/lib.rs", CODE + "mod inner;\n")
        for files in [
            {"inner.rs": "#[cfg(test)]\nmod tests {\n" + unit + "}\n"},
            {"inner.rs": "#[cfg(test)]\nmod tests;\n", "inner/tests.rs": unit},
            {"inner/mod.rs": "#[cfg(test)]\n" + moved, "inner/other_tests.rs": unit},
            {"inner.rs": "#[cfg(all(test, x))]\n" + moved, "other_tests.rs": unit},
        ]:
            with self.subTest(files=files):
                for path, text in files.items():
                    self.write("dataplane/src/" + path, text)
                self.assertEqual(self.states("AB")["AB-1.2-02"], "proven")
                for path in files:
                    (self.root / "dataplane/src" / path).unlink()

    def test_production_is_what_users_get(self) -> None:
        self.write("bench/Cargo.toml", '[package]\nname = "bench"\n')
        for path, text, expected in [
            ("dataplane/src/lib.rs", "// AB-1.2-02\n", "proven"),
            ("dataplane/src/lib.rs", "fn x() {\n// AB-1.2-02\n}\n", "proven"),
            ("dataplane/src/lib.rs", "#[cfg(test)]\nmod tests;\n// AB-1.2-02\n", "proven"),
            ("dataplane/src/lib.rs", "#[cfg(test)]\nmod tests {\n// AB-1.2-02\n}\n", "test only"),
            ("dataplane/src/lib.rs", "// AB-1.2-02\n#[cfg(test)]\nfn helper() {}\n", "test only"),
            ("bench/src/lib.rs", "// AB-1.2-02\n", "test only"),
            # No part of any crate.
            ("dataplane/src/left_over.rs", "// AB-1.2-02\n", "test only"),
            ("scripts/tool", "# AB-1.2-02\n", "test only"),
            ("docs/a.md", "AB-1.2-02\n", "test only"),
        ]:
            with self.subTest(path=path, text=text):
                self.write("dataplane/src/lib.rs", "// AB-1.2-01\n")
                self.write(path, text if path != "dataplane/src/lib.rs" else "// AB-1.2-01\n\n" + text)
                self.assertEqual(self.states("AB")["AB-1.2-02"], expected)
                (self.root / path).unlink()

    def test_cases_of_the_rig_count_when_they_ran(self) -> None:
        self.write("dataplane/tests/stack/main.rs", PROOF.replace("AB-1.2-02", ""))
        case = "from types import SimpleNamespace as S\n"
        case += "CASES = {1: S(name='a-bad-one', requirements=('AB-1.2-02',))}\n"
        self.write("scripts/interop/iwarp/__init__.py", "")
        self.write("scripts/interop/iwarp/operation_attacks.py", "")
        self.write("scripts/interop/iwarp/operation_cases.py", case)
        case = case.replace("CASES", "SCENARIOS").replace("bad", "worse")
        self.write("scripts/interop/iwarp/hostile.py", case)
        for line, expected in [
            ("ok    operations: a-bad-one: 0.1 s", "proven"),
            ("ok    tap 1500: hostile a-worse-one: closed; reported as mpa:2", "proven"),
            ("FAIL  operations: a-bad-one: no", "code only"),
            ("ok    operations: another-one: 0.1 s", "code only"),
            ("      operations: a-bad-one: not run: no tap", "code only"),
        ]:
            with self.subTest(line=line):
                self.write("results/interop.log", line + "\n")
                self.assertEqual(self.states("AB")["AB-1.2-02"], expected)

    def test_a_comment_names_six_ids_at_most(self) -> None:
        rows = "".join(f"| AB-7-{n:02} | MAY | what | U. |\n" for n in range(1, 9))
        self.write("docs/requirements.md", REQUIREMENTS.replace("\n\n| No", f"\n{rows}\n| No"))
        for text, fails in [
            ("// AB-7-01 to AB-7-06\n", False),
            ("// AB-7-01 to AB-7-07\n", True),
            ("// AB-7-01, AB-7-02\n/// AB-7-03 to\n/// AB-7-05\n// AB-7-07, AB-7-08\n", True),
            ("// AB-7-01 to AB-7-04\nfn x() {}\n// AB-7-05 to AB-7-08\n", False),
            ("// AB-7-01 to AB-7-06, AB-7-03, AB-7-01\n", False),
        ]:
            with self.subTest(text=text):
                self.write("dataplane/src/lib.rs", CODE + "\n" + text)
                self.assertEqual(self.check()[0], 1 if fails else 0)
                if fails:
                    self.assert_problem("dataplane/src/lib.rs:4: 7 IDs in one comment, more than 6")

    def test_only_whole_ids_are_citations(self) -> None:
        almost = "// XAB-1.2-03 AB-1.2-031x AB-1.2 A-01 ab-1.2-03 AB-1.2-3\n"
        self.write("dataplane/src/lib.rs", CODE + almost)
        self.assertEqual(self.states("AB")["AB-1.2-03"], "neither")
        self.assertEqual(self.check()[0], 0)

    def test_unknown_ids_and_false_ranges_are_found(self) -> None:
        for text, expected in [
            ("// AB-1.2-09", "dataplane/src/lib.rs:4: AB-1.2-09 does not exist"),
            ("// AB-1.2-02 to AB-1.2-04", "AB-1.2-04 does not exist"),
            ("// AB-1.2-02 to AB-C.1-01", "AB-1.2-02 to AB-C.1-01 is no range"),
            ("// AB-1.2-03 to AB-1.2-01", "AB-1.2-03 to AB-1.2-01 is no range"),
        ]:
            with self.subTest(text=text):
                self.write("dataplane/src/lib.rs", CODE + "\n" + text)
                self.assert_problem(expected)

    def test_exceptions_are_checked(self) -> None:
        for row, expected in [
            ("| AB-9-01 | reason |", "AB-9-01 does not exist"),
            ("| AB-1.2-03 | |", "AB-1.2-03 has no reason"),
            ("| AB-C.1-01 | again |", "AB-C.1-01 stands twice"),
            ("| AB-1.2 | reason |", "malformed row"),
            ("| AB-1.2-03 | reason | more |", "malformed row"),
            ("| AB-1.2-03 to AB-1.2-01 | reason |", "is no range"),
            ("| AB-1.2-01 | the third version |", "AB-1.2-01 is proven, yet listed as not built"),
        ]:
            with self.subTest(row=row):
                self.write("docs/exceptions.md", EXCEPTIONS + row + "\n")
                self.assert_problem(expected)
        self.write("dataplane/src/lib.rs", "")
        row = "\n| AB-1.2-01 to AB-1.2-03 | reason |\n\n##"
        self.write("docs/exceptions.md", EXCEPTIONS.replace("\n\n##", row))
        self.assertEqual(self.figures()["AB"], [4, 3, 0, 0, 0, 0, 4, 0])
        self.assertEqual(self.check()[0], 0)

    def test_requirements_are_checked(self) -> None:
        for row, expected in [
            ("| AB-1.2-01 | MUST | again | U. |", "AB-1.2-01 stands twice"),
            ("| AB-1.2-04 | PERHAPS | what | U. |", "unknown level 'PERHAPS'"),
            ("| AB-1.2-04 | MUST | what |", "needs four filled cells"),
            ("| AB-1.2-04 | MUST | | U. |", "needs four filled cells"),
            ("| AB-1.2-4 | MUST | what | U. |", "malformed ID 'AB-1.2-4'"),
            ("| AB-1.2-04 | SHOULD NOT | what | U. |", "AB-1.2-04 (SHOULD NOT) is not proven: neither"),
            ("| AB-1.2-04 | RECOMMENDED | what | U. |", "AB-1.2-04 (RECOMMENDED) is not proven: neither"),
        ]:
            with self.subTest(row=row):
                self.write("docs/requirements.md", REQUIREMENTS.replace("\n\n| No", f"\n{row}\n\n| No"))
                self.assert_problem(expected)

    def test_what_cannot_be_done_is_refused(self) -> None:
        self.write("quiet/tests.log", "running 3 tests\n...\ntest result: ok. 3 passed\n")
        nowhere, quiet = str(self.root / "nowhere"), str(self.root / "quiet")
        for arguments in [
            ["--list", "XY"],
            ["--check", "--results", nowhere],
            ["--check", "--results", quiet],
        ]:
            with self.subTest(arguments=arguments), self.assertRaises(SystemExit):
                self.run_program(*arguments)


if __name__ == "__main__":
    unittest.main()
