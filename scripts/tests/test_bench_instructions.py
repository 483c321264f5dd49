"""Tests of the instruction counts of scripts/bench."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from benchmarks import instructions
from benchmarks.callgrind import Place, Profile, read_profile

# As callgrind writes it: names by number after their first use, code of another file inlined (fi), a call
# with the instructions of what it leads to, and positions relative to the line before.
PART = """\
# callgrind format
version: 1
positions: line
events: Ir
summary: 1000

ob=(1) /bin/bench
fl=(1) /x/bench/turn.rs
fn=(1) bench::turn::writer_turn
10 5
cob=(1)
cfi=(2) /x/dataplane/src/core/mod.rs
cfn=(2) core::poll_once
calls=1 20
+2 995

fl=(2)
fn=(2)
20 95
fi=(3) /x/dataplane/src/memory/copy.rs
+3 200
cfi=(5) ./string/memmove-vec-unaligned-erms.S
cfn=(3) __memcpy_avx_unaligned_erms
calls=1 0
* 60
fe=(2)
cfi=(5)
cfn=(3)
calls=2 0
-1 40
cfi=(4) /x/crc-fast-1.10.0/src/sse.rs
cfn=(4) crc_fast::iscsi
calls=1 0
* 600

fl=(5)
fn=(3)
0 100

fl=(4)
fn=(4)
7 600
"""


class CallgrindTest(unittest.TestCase):
    def setUp(self) -> None:
        self.profile = read_profile(PART.splitlines())

    def test_the_sum_is_the_summary(self) -> None:
        self.assertEqual(self.profile.total(), 1000)

    def test_functions_are_with_and_without_what_they_call(self) -> None:
        functions = self.profile.by_function()
        self.assertEqual(functions["bench::turn::writer_turn"], (1000, 5))
        self.assertEqual(functions["core::poll_once"], (995, 295))
        self.assertEqual(functions["crc_fast::iscsi"], (600, 600))

    def test_code_that_was_inlined_keeps_its_file(self) -> None:
        place = Place("core::poll_once", "/x/dataplane/src/memory/copy.rs")
        self.assertEqual(self.profile.own[place], 200)

    def test_events_are_added_by_name_and_may_be_left_out_at_the_end(self) -> None:
        lines = ["events: Ir D1mr D1mw DLmr", "fl=(1) /x/a.rs", "fn=(1) a::b", "10 5 3 2 1", "+1 7 4", "* 9"]
        misses = read_profile(lines, ("D1mr", "D1mw"))
        self.assertEqual(misses.own, {Place("a::b", "/x/a.rs"): 9})
        self.assertEqual(read_profile(lines).total(), 21)
        self.assertEqual(read_profile(lines, ("DLmr",)).total(), 1)

    def test_only_what_copies_payload_is_a_copy(self) -> None:
        kinds = instructions.instructions_by_kind(self.profile)
        # 60 of memcpy's were called from the file that copies payload, 40 from elsewhere.
        self.assertEqual(kinds, {"protocol": 140, "crc": 600, "copy": 260, "moves": 40})


def counts(segments: int, idle: int = 0, again: int = 0) -> dict[str, int]:
    return {
        "data_segments_sent": segments,
        "frames_received": segments,
        "messages": 0,
        "fpdus": segments,
        "idle_polls": idle,
        "retransmitted_segments": again,
    }


def turn_profile(end: str, own: int) -> Profile:
    profile = Profile()
    profile.own[Place(f"bench::{end}_turn", "turn.rs")] = own
    profile.called[Place("serve", "baton.rs"), f"bench::{end}_turn"] = own
    return profile


def phase(writer: int = 1000, target: int = 2000, **ends: dict[str, int]) -> instructions.Phase:
    """A phase of ten segments, with instructions of the ends and what differs in their counts (at_...)."""
    profiles = {"writer": turn_profile("writer", writer), "target": turn_profile("target", target)}
    facts = {end: ends.get(f"at_{end}", counts(10)) for end in instructions.ENDS}
    return instructions.Phase("case", "segment", facts, profiles)


BASELINE = {"case": {"unit": "segment", "writer": 100, "target": 200}}


class GuardTest(unittest.TestCase):
    def test_the_tolerance_is_three_percent_upwards(self) -> None:
        self.assertEqual(instructions.regressions([phase(1030, 2000)], BASELINE), [])
        (sentence,) = instructions.regressions([phase(1031, 2000)], BASELINE)
        self.assertEqual(sentence, "case: the writer takes 103 instructions a segment, 3.1 % more than 100")
        (sentence,) = instructions.regressions([phase(500, 2100)], BASELINE)
        self.assertIn("the target takes 210", sentence)

    def test_fewer_instructions_ask_for_a_new_baseline(self) -> None:
        self.assertFalse(instructions.is_below([phase(971, 2000)], BASELINE))
        self.assertTrue(instructions.is_below([phase(960, 2000)], BASELINE))

    def test_a_case_without_a_baseline_is_refused(self) -> None:
        self.assertEqual(instructions.regressions([phase()], {}), ["case is not in the baseline"])

    def test_a_case_that_is_not_measured_is_missed(self) -> None:
        self.assertEqual(instructions.regressions([], BASELINE), ["case was not measured"])

    def test_another_unit_has_another_baseline(self) -> None:
        baseline = {"case": {"unit": "message", "writer": 100, "target": 200}}
        (sentence,) = instructions.regressions([phase()], baseline)
        self.assertIn("the baseline counts a message", sentence)

    def test_a_recorded_baseline_is_met(self) -> None:
        measured = [phase(1234, 5678)]
        self.assertEqual(instructions.regressions(measured, instructions.baseline_of(measured)), [])

    def test_polls_that_were_not_steady_are_refused(self) -> None:
        instructions.validate(phase())
        for wrong in (
            phase(at_writer=counts(10, again=1)),
            phase(at_target=counts(10, idle=1)),
            phase(at_target=counts(0)),
        ):
            with self.assertRaises(instructions.Unusable, msg=str(wrong.facts)):
                instructions.validate(wrong)

    def test_a_part_of_another_thread_is_refused(self) -> None:
        swapped = phase()
        swapped.profiles["writer"] = swapped.profiles["target"]
        with self.assertRaisesRegex(instructions.Unusable, "no writer_turn"):
            instructions.validate(swapped)

    def test_a_missing_part_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(instructions.Unusable, "part 1"):
            instructions.phases([{"name": "case", "unit": "segment"}], pathlib.Path(folder))

    def test_the_table_has_a_row_for_each_end(self) -> None:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            instructions.print_table([phase(1030)], BASELINE)
        rows = text.getvalue().splitlines()[1:]
        self.assertEqual([row.split()[:2] for row in rows], [["case", "writer"], ["case", "target"]])
        self.assertIn("+3.0%", rows[0])


if __name__ == "__main__":
    unittest.main()
