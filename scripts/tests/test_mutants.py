"""Tests of what scripts/mutants makes of source, of the compiler's errors, and of a test's end."""

import pathlib
import stat
import sys
import tempfile
import unittest
from typing import Any
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from mutation import judging
from mutation.embedding import Mutant, NoBody, Span, body_of, embed, is_conditional, is_nested, read_mutant
from mutation.judging import Judge, Outcome, judge_all, seconds_of_children
from mutation.program import Unusable, errors_of

SOURCE = """//! Of sums.

impl Sum {
    /// Adds.
    pub fn add(&mut self, a: u32) -> u32 {
        self.total += a; // {
        self.total + a
    }

    fn name(&self) -> &'static str {
        "sum"
    }
}
"""

# As scripts/mutants runs a test: the first two mutants are reached, and the second goes on for ever.
TEST = """#!/bin/sh
case $WARPLINE_MUTANT in
    1) echo "the mutant is reached" >&2; exit 101 ;;
    2) echo "the mutant is reached" >&2; exec sleep 60 ;;
    3) echo "the mutant is reached" >&2; [ "$1" = few ] ;;
    4) echo "the mutant is reached" >&2 ;;
    6) while :; do :; done ;;
esac
"""


def whole(text: str) -> Span:
    """All of it."""
    return Span(0, len(text))


def listed(what: str, replacement: str, function: str) -> dict[str, Any]:
    """What cargo-mutants lists for a change of `what` in `function` of the source."""

    def span(text: str) -> dict[str, Any]:
        begin = SOURCE.index(text)
        return {"start": position(begin), "end": position(begin + len(text))}

    def position(offset: int) -> dict[str, int]:
        before = SOURCE[:offset]
        return {"line": before.count("\n") + 1, "column": offset - before.rfind("\n")}

    return {
        "name": f"replace {what}",
        "file": "sum.rs",
        "function": {"span": span(function)},
        "span": span(what),
        "replacement": replacement,
    }


ADD = SOURCE[SOURCE.index("pub fn add") : SOURCE.index("\n\n    fn name")]
NAME = SOURCE[SOURCE.index("fn name") : SOURCE.rindex("\n}")]


def mutants() -> list[Mutant]:
    """Two of one function, and one of another."""
    changes = [
        listed("self.total + a\n", "self.total - a\n", ADD),
        listed("+=", "-=", ADD),
        listed('"sum"', '""', NAME),
    ]
    return [read_mutant(number, change, SOURCE) for number, change in enumerate(changes, 1)]


class EmbeddingTest(unittest.TestCase):
    def test_each_function_is_itself_or_one_of_its_mutants(self) -> None:
        text = embed(SOURCE, mutants()).text
        first = (
            "if crate::mutation::is_chosen(1) {\n\n        self.total += a; // {\n        self.total - a\n"
        )
        second = (
            "if crate::mutation::is_chosen(2) {\n\n        self.total -= a; // {\n        self.total + a\n"
        )
        self.assertIn(first, text)
        self.assertIn(second, text)
        self.assertIn('else {\n        "sum"\n    }}\n', text)
        # Without mutants it is what it was.
        self.assertEqual(embed(SOURCE, []).text, SOURCE)

    def test_an_error_is_due_to_the_mutant_in_whose_lines_it_is(self) -> None:
        embedded = embed(SOURCE, mutants())
        lines = embedded.text.split("\n")

        def blamed(words: str) -> tuple[int, ...]:
            return embedded.blamed(1 + next(at for at, line in enumerate(lines) if words in line))

        self.assertEqual(blamed("self.total - a"), (1,))
        self.assertEqual(blamed("self.total -= a"), (2,))
        self.assertEqual(blamed('""'), (3,))
        # What is in no single one of them is due to all of the function.
        self.assertEqual(blamed("is_chosen(2)"), (1, 2))
        self.assertEqual(blamed("//! Of sums"), ())

    def test_a_body_is_found_behind_every_signature(self) -> None:
        signatures = [
            "fn f(&self, octets: [u8; { LEN }]) -> Result<[u8; 2], Error> ",
            "fn f<'a, F>(&'a self, f: F) -> ArrayVec<u8, { limits::MOST }>\nwhere\n    F: Fn(u8) -> bool,\n",
            "#[expect(dead_code, reason = \"a brace: {\")]\n/// Of { and '}'.\nconst fn f() ",
            "fn f(c: char /* { */) -> bool ",
        ]
        for signature in signatures:
            text = signature + "{ body }"
            self.assertEqual(body_of(text, whole(text)).of(text), " body ", signature)
        with self.assertRaises(NoBody):
            body_of("fn f();", whole("fn f();"))

    def test_a_function_of_some_builds_is_known_by_its_attribute(self) -> None:
        def found(text: str) -> bool:
            return is_conditional(text, Span(text.index("pub fn f"), len(text)))

        self.assertTrue(found("use a;\n\n/// Text.\n#[cfg(test)]\n#[inline]\npub fn f() { 1 }"))
        self.assertFalse(found("#[cfg(test)]\nuse a;\n\n/// Text.\n#[inline]\npub fn f() { 1 }"))
        self.assertFalse(found("#[cfg(test)]\nfn e() {}\n#[inline]\npub fn f() { 1 }"))

    def test_a_function_and_one_inside_are_not_both_mutated(self) -> None:
        outer, inner, after = Span(10, 50), Span(20, 30), Span(50, 60)
        self.assertTrue(is_nested(inner, [after, outer]))
        self.assertTrue(is_nested(outer, [inner]))
        # Another mutant of the same function is no other function.
        self.assertFalse(is_nested(outer, [outer, after]))

    def test_a_function_inside_another_that_is_mutated_is_refused(self) -> None:
        outer = mutants()[0]
        begin = SOURCE.index("self.total += a; // {\n        self")
        inner = Mutant(9, "inner", "sum.rs", outer.change, Span(begin, outer.function.end), "0")
        with self.assertRaises(NoBody):
            embed(SOURCE, [outer, inner])


class ErrorsTest(unittest.TestCase):
    def test_the_places_that_errors_name_are_found(self) -> None:
        def message(level: str, primary: bool) -> dict[str, Any]:
            span = {"is_primary": primary, "file_name": "sum.rs", "line_start": 7}
            return {
                "reason": "compiler-message",
                "message": {"level": level, "spans": [span], "rendered": "no"},
            }

        built = {"reason": "build-finished", "success": False}
        found = errors_of([message("warning", True), message("error", True), message("error", False), built])
        self.assertEqual(found, [("sum.rs", 7, "no")])


class JudgeTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.program = pathlib.Path(folder.name) / "judge"
        self.judge = Judge(self.program, pathlib.Path(folder.name), ((("few",), {}), (("many",), {})))

    def write_program(self, text: str) -> None:
        self.program.write_text(text)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def test_what_came_of_each_mutant(self) -> None:
        self.write_program(TEST)
        with mock.patch.object(judging, "LEAST_SECONDS", 1), mock.patch.object(judging, "WAITS", 3):
            found = dict(judge_all(self.judge, range(1, 6)))
        expected = [Outcome.FAILED, Outcome.HUNG, Outcome.FAILED, Outcome.PASSED, Outcome.NOT_REACHED]
        self.assertEqual([found[number] for number in range(1, 6)], expected)
        self.assertEqual([outcome.is_caught for outcome in expected], [True, True, True, False, False])

    def test_a_mutant_that_computes_for_ever_is_ended_by_the_processor_s_time(self) -> None:
        self.write_program(TEST)
        with mock.patch.object(judging, "LEAST_SECONDS", 1):
            begun = seconds_of_children()
            found = dict(judge_all(self.judge, [6]))
        self.assertEqual(found, {6: Outcome.HUNG})
        self.assertLess(seconds_of_children() - begun, 5)

    def test_a_test_that_fails_with_no_mutant_is_refused(self) -> None:
        self.write_program("#!/bin/sh\nexit 1\n")
        with self.assertRaises(Unusable):
            list(judge_all(self.judge, [1]))


if __name__ == "__main__":
    unittest.main()
