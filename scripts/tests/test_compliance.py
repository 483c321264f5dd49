"""Tests of scripts/compliance on small trees made for the purpose."""

import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import tempfile
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
| AB-1.2-03 | SHOULD | third \\| with a bar | U. |
| AB-C.1-01 | INFO | fourth | U. |
| ABv2-3-01 | NOT REQUIRED | fifth | U. |

| No | Question | Reading |
|---|---|---|
| A-01 | what? | that. |
"""

EXCEPTIONS = """# Exceptions

| ID | Reason |
|---|---|
| AB-C.1-01 | not needed |
"""


def load():
    loader = importlib.machinery.SourceFileLoader("compliance", str(PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("compliance", loader))
    loader.exec_module(module)
    return module


class ComplianceTest(unittest.TestCase):
    def setUp(self):
        self.compliance = load()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("docs/requirements.md", REQUIREMENTS)
        self.write("docs/exceptions.md", EXCEPTIONS)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def run_program(self, *arguments):
        """The exit status and what was printed to each stream."""
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            status = self.compliance.main(list(arguments), self.root)
        return status, output.getvalue(), errors.getvalue()

    def figures(self):
        """The figures of every row of the summary, by its prefix."""
        _, output, _ = self.run_program()
        return {line.split()[0]: [int(word) for word in line.split()[1:]] for line in output.splitlines()[1:]}

    def states(self, prefix):
        _, output, _ = self.run_program("--list", prefix)
        return dict(line.split() for line in output.splitlines() if line.startswith(prefix + "-"))

    def assert_problem(self, expected):
        status, _, errors = self.run_program("--check")
        self.assertEqual(status, 1)
        self.assertIn(expected, errors)
        self.assertEqual(self.run_program()[0], 0, "only --check fails")

    def test_a_sound_tree_passes_and_is_counted(self):
        self.write("src/lib.rs", "// AB-1.2-01\n#[cfg(test)]\nmod tests {\n// AB-1.2-01, AB-1.2-02\n}\n")
        self.assertEqual(self.run_program("--check"), (0, self.run_program()[1], ""))
        self.assertEqual(self.figures(), {"AB": [4, 1, 2, 1, 1, 1], "ABv2": [1, 0, 0, 0, 1, 0], "all": [5, 1, 2, 1, 2, 1]})
        expected = {"AB-1.2-01": "both", "AB-1.2-02": "test", "AB-1.2-03": "neither", "AB-C.1-01": "excepted"}
        self.assertEqual(self.states("AB"), expected)

    def test_where_an_id_stands_decides_who_cites_it(self):
        for path, text, expected in [
            ("src/a.rs", "// AB-1.2-01", "code"),
            ("src/a.sh", "# AB-1.2-01", "code"),
            ("scripts/tool", "# AB-1.2-01", "code"),
            ("src/a.rs", "#[cfg(test)]\nmod tests;\n// AB-1.2-01", "code"),
            ("src/a.rs", "#[cfg(test)]\nuse x::y;\n// AB-1.2-01", "code"),
            ("src/a.rs", "#[cfg(test)]\n#[allow(x)]\nmod tests {\n// AB-1.2-01", "test"),
            ("src/a/tests.rs", "// AB-1.2-01", "test"),
            ("src/a_tests.rs", "// AB-1.2-01", "test"),
            ("src/contests.rs", "// AB-1.2-01", "code"),
            ("crate/tests/a.rs", "// AB-1.2-01", "test"),
            ("scripts/interop/run", "# AB-1.2-01", "test"),
            ("scripts/interop/peer.py", "# AB-1.2-01", "test"),
            ("target/a.rs", "// AB-1.2-01", "neither"),
            ("scripts/tests/a.py", "# AB-1.2-01", "neither"),
            ("docs/a.md", "AB-1.2-01", "neither"),
        ]:
            with self.subTest(path=path, text=text):
                self.write(path, text)
                self.assertEqual(self.states("AB")["AB-1.2-01"], expected)
                (self.root / path).unlink()

    def test_ranges_are_expanded_also_over_a_line_break(self):
        for text in ["// AB-1.2-01 to AB-1.2-03.", "/// AB-1.2-01 to\n/// AB-1.2-03", "# AB-1.2-01\n# to AB-1.2-03"]:
            with self.subTest(text=text):
                self.write("src/a.rs", text)
                self.assertEqual(self.figures()["AB"], [4, 3, 0, 0, 0, 1])

    def test_only_whole_ids_are_citations(self):
        self.write("src/a.rs", "XAB-1.2-01 AB-1.2-011x AB-1.2 A-01 ab-1.2-01 AB-1.2-1")
        self.assertEqual(self.figures()["all"], [5, 0, 0, 0, 4, 1])
        self.assertEqual(self.run_program("--check")[0], 0)

    def test_unknown_ids_and_false_ranges_are_found(self):
        self.write("src/a.rs", "\n// AB-1.2-09")
        self.assert_problem("src/a.rs:2: AB-1.2-09 does not exist")
        self.write("src/a.rs", "// AB-1.2-02 to AB-1.2-04")
        self.assert_problem("AB-1.2-04 does not exist")
        self.write("src/a.rs", "// AB-1.2-02 to AB-C.1-01")
        self.assert_problem("AB-1.2-02 to AB-C.1-01 is no range")
        self.write("src/a.rs", "// AB-1.2-03 to AB-1.2-01")
        self.assert_problem("AB-1.2-03 to AB-1.2-01 is no range")

    def test_exceptions_are_checked(self):
        for row, expected in [
            ("| AB-9-01 | reason |", "AB-9-01 does not exist"),
            ("| AB-1.2-01 | |", "AB-1.2-01 has no reason"),
            ("| AB-C.1-01 | again |", "AB-C.1-01 stands twice"),
            ("| AB-1.2 | reason |", "malformed row"),
            ("| AB-1.2-01 | reason | more |", "malformed row"),
            ("| AB-1.2-03 to AB-1.2-01 | reason |", "is no range"),
        ]:
            with self.subTest(row=row):
                self.write("docs/exceptions.md", EXCEPTIONS + row + "\n")
                self.assert_problem(expected)
        self.write("docs/exceptions.md", EXCEPTIONS + "| AB-1.2-01 to AB-1.2-03 | reason |\n")
        self.assertEqual(self.figures()["AB"], [4, 0, 0, 0, 0, 4])

    def test_requirements_are_checked(self):
        for row, expected in [
            ("| AB-1.2-01 | MUST | again | U. |", "AB-1.2-01 stands twice"),
            ("| AB-1.2-04 | PERHAPS | what | U. |", "unknown level 'PERHAPS'"),
            ("| AB-1.2-04 | MUST | what |", "needs four filled cells"),
            ("| AB-1.2-04 | MUST | | U. |", "needs four filled cells"),
            ("| AB-1.2-4 | MUST | what | U. |", "malformed ID 'AB-1.2-4'"),
        ]:
            with self.subTest(row=row):
                self.write("docs/requirements.md", REQUIREMENTS.replace("\n\n| No", f"\n{row}\n\n| No"))
                self.assert_problem(expected)

    def test_an_unknown_prefix_is_refused(self):
        with self.assertRaises(SystemExit):
            self.run_program("--list", "XY")


if __name__ == "__main__":
    unittest.main()
