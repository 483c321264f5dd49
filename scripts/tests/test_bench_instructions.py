"""Tests of the instruction counts of scripts/bench."""

import contextlib
import dataclasses
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import struct
import sys
import tempfile
import unittest
from collections.abc import Iterator
from typing import Any, ClassVar
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from benchmarks import bars, cache_lines, figures, instructions, machine_code
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
        expected = {"protocol": 140, "crc": 600, "sums": 0, "copy": 260, "moves": 40}
        self.assertEqual(kinds, expected | {"branches": 0, "locked": 0})

    def test_branches_and_locked_operations_are_counted_by_address(self) -> None:
        lines = [
            *("positions: instr line", "events: Ir Bc Bcm Bi Bim", "ob=(1) /bin/bench"),
            *("fl=(1) /x/a.rs", "fn=(1) a::b", "0x1000 10 5 3", "+4 +1 5", "* * 5 2 1"),
            *("calls=1 0x2000 7 ", "-4 -1 90 40", "fl=(2) /x/copy.rs", "ob=(2) /lib/c.so", "0x1004 3 2"),
        ]
        asked = []

        def locks(program: str, address: int) -> bool:
            asked.append((program, address))
            return (program, address) == ("/bin/bench", 0x1004)

        profile = read_profile(lines, locks=locks)
        here = Place("a::b", "/x/a.rs")
        self.assertEqual(profile.own, {here: 15, Place("a::b", "/x/copy.rs"): 2})
        self.assertEqual(profile.branches[here], 5)
        self.assertEqual((profile.locked[here], profile.locked.total()), (10, 10))
        addresses = [("/bin/bench", address) for address in (0x1000, 0x1004, 0x1004)]
        self.assertEqual(asked, [*addresses, ("/lib/c.so", 0x1004)])

    def test_what_the_network_does_is_no_end_s(self) -> None:
        profile = Profile()
        profile.own[Place("bench::network::Disturbed::disturb_burst", "network.rs")] = 100
        profile.own[Place("<bench::network::Disturbed as Device>::transmit", "network.rs")] = 10
        profile.branches[Place("bench::network::Disturbed::disturb_burst", "network.rs")] = 30
        profile.branches[Place("a::b", "/x/a.rs")] = 3
        profile.branches[Place("crc_fast::update", "/x/sse.rs")] = 300
        kinds = instructions.instructions_by_kind(profile)
        self.assertEqual((kinds["protocol"], kinds["branches"]), (10, 3))

    def test_checksums_are_counted_apart(self) -> None:
        profile = Profile()
        # What was inlined there keeps its file.
        for file, count in (("/x/checksum.rs", 100), ("/lib/core/src/num/uint_macros.rs", 200)):
            profile.own[Place("warpline_dataplane::wire::checksum::sum_of_words", file)] = count
        profile.own[Place("warpline_dataplane::wire::tcp::checksum", "/x/checksum.rs")] = 7
        profile.branches[Place("warpline_dataplane::wire::checksum::sum_of_words", "/x/checksum.rs")] = 30
        kinds = instructions.instructions_by_kind(profile)
        self.assertEqual((kinds["protocol"], kinds["sums"], kinds["branches"]), (7, 300, 0))

    def test_what_an_adapter_would_do_is_no_end_s(self) -> None:
        wires = "warpline_dataplane::device::dpdk::core_wires::CoreWires::transmit"
        profile = Profile()
        profile.own[Place(wires, "/x/dataplane/src/device/dpdk/core_wires.rs")] = 100
        look = wires.replace("transmit", "has_arrivals")
        profile.own[Place(look, "/x/dataplane/src/device/dpdk/core_wires.rs")] = 200
        profile.own[Place("warpline_dataplane::steering::toeplitz::Toeplitz::hash", "/x/mod.rs")] = 1000
        profile.own[Place(wires, "/x/ffi/dpdk/src/frame_ring.rs")] = 30
        profile.own[Place("dpdk::wire::WireEnd::transmit", "/x/ffi/dpdk/src/frame_ring.rs")] = 10
        profile.own[Place("__memset_avx2", "memset.S")] = 7
        profile.called[Place(wires, "/x/dataplane/src/device/dpdk/core_wires.rs"), "__memset_avx2"] = 5
        protocol = instructions.instructions_by_kind(profile)["protocol"]
        self.assertEqual(protocol, 10 + 7 - 5, "the wire is the end's, and what others clear")


class MachineCodeTest(unittest.TestCase):
    def test_locked_operations_are_known_by_prefix_or_by_an_exchange_with_memory(self) -> None:
        for code in (
            *("f0 0f b1 0f", "f0 48 83 07 01", "66 f0 83 07 01", "f2 f0 0f b1 0f"),
            *("87 07", "48 87 07", "86 47 08", "66 41 87 04 24"),
        ):
            self.assertTrue(machine_code.is_locked(bytes.fromhex(code)), code)
        for code in ("48 87 d8", "87 c0", "90", "48 89 07", "0f 87 00 01", "66 90", "c3", "f3 a4", "", "48"):
            self.assertFalse(machine_code.is_locked(bytes.fromhex(code)), code)

    def test_code_is_found_by_the_address_that_it_is_loaded_at(self) -> None:
        headers = b"\x7fELF\x02" + bytes(27) + struct.pack("<Q", 64) + bytes(14) + struct.pack("<HH", 56, 2)
        headers = headers.ljust(64, b"\0")
        # A segment that is not loaded, and one of 8 octets at 0x400010 from octet 176 of the file on.
        headers += struct.pack("<IIQQQQQQ", 6, 0, 64, 0x400000, 0, 112, 112, 8)
        headers += struct.pack("<IIQQQQQQ", 1, 5, 176, 0x400010, 0, 8, 8, 16)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "program"
            path.write_bytes(headers + bytes.fromhex("4889 f0 48830701 90") + b"\xf0" * 8)
            program = machine_code.Program(path)
            self.assertTrue(program.locks(0x400012))
            self.assertFalse(program.locks(0x400010))
            self.assertEqual(len(program.code(0x400012)), 6)
            self.assertFalse(program.locks(0x400018))
            programs = machine_code.Programs()
            self.assertTrue(programs.locks(str(path), 0x400012))
            self.assertFalse(programs.locks("[vdso]", 0x400012))
            path.write_bytes(b"#!/bin/sh")
            with self.assertRaisesRegex(ValueError, "no ELF file"):
                machine_code.Program(path)


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


def like(resembled: str, writer: int, target: int | None) -> instructions.Phase:
    """A phase of ten segments that resembles another; without a target, of one core."""
    profiles = {"writer": turn_profile("writer", writer)}
    facts = {"resembles": resembled, "writer": counts(10), "target": None}
    if target is not None:
        profiles["target"] = turn_profile("target", target)
        facts["target"] = counts(10)
    return instructions.Phase("like", "segment", facts, profiles)


def end(count: int, branches: float = 0.0, locked: float = 0.0) -> dict[str, float]:
    return {"instructions": count, "branches": branches, "locked": locked}


BENCH = pathlib.Path(__file__).resolve().parent.parent / "bench"
BASELINES = pathlib.Path(__file__).resolve().parent.parent / "instructions.json"
BASELINE: dict[str, Any] = {"case": {"unit": "segment", "writer": end(100), "target": end(200)}}


class GuardTest(unittest.TestCase):
    def test_the_tolerance_is_three_percent_upwards(self) -> None:
        self.assertEqual(instructions.regressions([phase(1030, 2000)], BASELINE), [])
        (sentence,) = instructions.regressions([phase(1031, 2000)], BASELINE)
        self.assertEqual(sentence, "case: the writer takes 103 instructions a segment, 3.1 % more than 100")
        (sentence,) = instructions.regressions([phase(500, 2100)], BASELINE)
        self.assertIn("the target takes 210", sentence)

    def test_branches_and_locked_operations_have_the_same_tolerance(self) -> None:
        measured = phase()
        measured.profiles["writer"].branches[Place("a::b", "a.rs")] = 200
        measured.profiles["writer"].locked[Place("a::b", "a.rs")] = 10
        for branches, locked, expected in (
            (20.0, 1.0, []),
            (19.3, 0.96, []),
            (19.0, 1.0, ["20.0 conditional branches a segment, 5.3 % more than 19.0"]),
            (20.0, 0.9, ["1.00 locked operations a segment, 11.1 % more than 0.9"]),
            (20.0, 0.0, ["1.00 locked operations a segment, 0.0 % more than 0.0"]),
        ):
            baseline = {"case": {"unit": "segment", "writer": end(100, branches, locked), "target": end(200)}}
            found = instructions.regressions([measured], baseline)
            self.assertEqual(found, [f"case: the writer takes {text}" for text in expected])
        self.assertTrue(
            instructions.is_below([measured], {"case": {**BASELINE["case"], "writer": end(100, 22.0)}})
        )

    def test_a_case_may_take_little_more_than_the_one_it_resembles(self) -> None:
        measured = [phase(), like("case", 1300, 2620)]
        (sentence,) = instructions.cliffs(measured, ())
        self.assertIn("like: the target takes 1.31 of the instructions of case", sentence)
        self.assertEqual(instructions.cliffs(measured, {("like", "target")}), [])
        self.assertEqual(instructions.cliffs([phase(), like("case", 1300, 2600)], {("like", "target")}), [])
        with mock.patch.dict(bars.RESEMBLANCES, {"like": 1.02}):
            (sentence,) = instructions.cliffs([phase(), like("case", 1020, 2042)], ())
            self.assertIn("target takes 1.021 of the instructions of case, more than 1.02", sentence)
        (sentence,) = instructions.cliffs([phase(), like("case", 1300, 2500)], {("like", "target")})
        self.assertIn("excuse it no more", sentence)

    def test_one_core_is_compared_with_both_ends(self) -> None:
        measured = [phase(), like("case", 3000, None)]
        instructions.validate(measured[1])
        self.assertEqual(instructions.ratio(measured[1], "writer", measured), 1.0)
        self.assertIsNone(instructions.ratio(measured[0], "writer", measured))
        self.assertEqual(list(instructions.baseline_of(measured)["like"]), ["unit", "writer"])

    def test_fewer_instructions_ask_for_a_new_baseline(self) -> None:
        self.assertFalse(instructions.is_below([phase(971, 2000)], BASELINE))
        self.assertTrue(instructions.is_below([phase(960, 2000)], BASELINE))

    def test_a_case_without_a_baseline_is_refused(self) -> None:
        self.assertEqual(instructions.regressions([phase()], {}), ["case is not in the baseline"])

    def test_a_case_that_is_not_measured_is_missed(self) -> None:
        self.assertEqual(instructions.regressions([], BASELINE), ["case was not measured"])

    def test_another_unit_has_another_baseline(self) -> None:
        baseline = {"case": {"unit": "message", "writer": end(100), "target": end(200)}}
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

    def test_a_name_that_was_not_counted_is_refused(self) -> None:
        instructions.require_counted([phase()], ["case"])
        with self.assertRaisesRegex(instructions.Unusable, "not counted: cases, idle"):
            instructions.require_counted([phase()], ["idle", "case", "cases"])

    def test_halves_of_the_cases_are_joined_in_order(self) -> None:
        asked = []

        @contextlib.contextmanager
        def run(_program: pathlib.Path, _options: object, arguments: tuple[str, str]) -> Iterator[Any]:
            asked.append(arguments)
            yield arguments[1].split(","), pathlib.Path()

        def found(names: list[str], _folder: pathlib.Path) -> list[instructions.Phase]:
            return [
                instructions.Phase(name, unit, {"of": case}, {})
                for case in names
                for name, unit in ((case, "segment"), ("idle", "poll"))
            ]

        with (
            mock.patch.object(instructions, "cases", return_value=["a", "b", "c"]),
            mock.patch.object(instructions, "callgrind_run", run),
            mock.patch.object(instructions, "phases", found),
        ):
            measured = instructions.measure(pathlib.Path("program"))
        self.assertEqual(sorted(asked), [("--cases", "a,c"), ("--cases", "b")])
        self.assertEqual([phase.name for phase in measured], ["a", "idle", "b", "idle", "c", "idle"])
        self.assertEqual([phase.facts["of"] for phase in measured], [*"aabbcc"])

    def test_what_takes_too_much_is_measured_again_beside_what_it_resembles(self) -> None:
        def run(first: list[int], then: list[list[int]]) -> tuple[list[list[str]], list[float]]:
            """What was asked for again, and what counts, of a case and one like it."""
            asked: list[list[str]] = []
            runs = iter(then)

            def again(_program: pathlib.Path, names: list[str]) -> list[instructions.Phase]:
                asked.append(names)
                return pair(*next(runs))

            with mock.patch.object(instructions, "measure", again):
                measured = instructions.measure_again(pathlib.Path("program"), pair(*first), faults)
            return asked, [phase.instructions() for phase in measured]

        def pair(case: int, other: int) -> list[instructions.Phase]:
            return [phase(case, 2000), like("case", other, None)]

        def faults(measured: list[instructions.Phase]) -> list[str]:
            limits = {"case": 320, "like": 110}
            return [f"{at.name}: more" for at in measured if at.instructions() > limits[at.name]]

        self.assertEqual(run([1000, 1000], []), ([], [300, 100]))
        self.assertEqual(run([1300, 1000], [[1000, 1100]]), ([["case"]], [300, 100]))
        self.assertEqual(run([1000, 1300], [[1100, 1050]]), ([["case", "like"]], [300, 105]))
        asked, counts = run([1300, 1000], [[1400, 1000], [1250, 1000]])
        self.assertEqual((asked, counts), ([["case"], ["case"]], [325, 100]))

    def test_idle_polls_that_take_too_much_are_measured_again_with_the_first_case(self) -> None:
        def first_and_idle(idle_polls: int) -> list[instructions.Phase]:
            idle = phase(idle_polls, idle_polls, at_writer=counts(0, idle=10), at_target=counts(0, idle=10))
            return [phase(), dataclasses.replace(idle, name="idle", unit="poll")]

        def faults(measured: list[instructions.Phase]) -> list[str]:
            return [f"{at.name}: more" for at in measured if at.unit == "poll" and at.instructions() > least]

        least = first_and_idle(1000)[1].instructions()
        with mock.patch.object(instructions, "measure", return_value=first_and_idle(1000)) as again:
            measured = instructions.measure_again(pathlib.Path("program"), first_and_idle(1300), faults)
        again.assert_called_once_with(pathlib.Path("program"), ["case"])
        self.assertEqual([at.instructions() for at in measured], [phase().instructions(), least])

    def test_the_table_has_a_row_for_each_end(self) -> None:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            instructions.print_table([phase(1030)], BASELINE)
        rows = text.getvalue().splitlines()[1:]
        self.assertEqual([row.split()[:2] for row in rows], [["case", "writer"], ["case", "target"]])
        self.assertIn("+3.0%", rows[0])

    def test_the_table_has_the_ratio_to_the_case_that_is_resembled(self) -> None:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            instructions.print_table([phase(), like("case", 3150, None)], {})
        row = text.getvalue().splitlines()[-1]
        self.assertEqual(row.split()[:3], ["like", "both", "315"])
        self.assertTrue(row.endswith("a segment, 1.05 of case"), row)


def polls(name: str, messages: int, writer: int, target: int) -> instructions.Phase:
    """Ten polls with so many messages altogether."""
    facts: dict[str, Any] = {"size": 64, "mtu": 1500}
    for at in instructions.ENDS:
        facts[at] = {**counts(10), "messages": messages, "fpdus": messages, "polls": 10}
    profiles = {"writer": turn_profile("writer", writer), "target": turn_profile("target", target)}
    return instructions.Phase(name, "message", facts, profiles)


class FiguresTest(unittest.TestCase):
    def test_a_poll_beside_its_messages_is_where_the_line_through_two_counts_begins(self) -> None:
        # 500 a poll and 20 a message; 300 and 10.
        many, few = polls("many", 160, 5000 + 3200, 3000 + 1600), polls("few", 80, 5000 + 1600, 3000 + 800)
        poll, message = figures.of_poll(many, few)
        for found, expected in ((poll, (500, 300)), (message, (20, 10))):
            values = found.values["instructions"]
            for at, value in zip(instructions.ENDS, expected, strict=True):
                self.assertAlmostEqual(values[at], value)

    def test_a_message_is_all_its_segments(self) -> None:
        measured = phase()
        measured.facts.update(size=65536, mtu=9000)
        measured.facts["writer"] = {**counts(10), "messages": 4}
        found = figures.of_message(measured)
        self.assertEqual(found.name, "a message of 64 KiB at MTU 9000")
        self.assertEqual(found.values["instructions"], {"writer": 250.0, "target": 500.0})

    def test_a_marker_is_what_segments_take_more(self) -> None:
        marked, plain = phase(3000, 4000), phase(1000, 2000)
        # Ten segments of 5080 octets beside their Markers, of which each has ten.
        marked.facts["writer"] = {**counts(10), "messages": 10, "fpdus": 10}
        marked.facts["size"] = 5080 - 20
        found = figures.of_marker(marked, plain)
        self.assertEqual(found.values["instructions"], {"writer": 20.0, "target": 20.0})

    def test_bars_stand_beside_their_figures(self) -> None:
        rows = (bars.Bar("case", "instructions", 90, None), bars.Bar("lines a message", "lines", 40, 25))
        lines = [cache_lines.Lines(at, 50.25, 20.0, []) for at in instructions.ENDS]
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            figures.print_bars([*figures.of_cases([phase()]), cache_lines.as_figure(lines)], rows)
        first, second = (row.split() for row in text.getvalue().splitlines()[-2:])
        self.assertEqual(first, ["case", "instructions", "100", "90", "-", "-"])
        self.assertEqual(second, ["lines", "a", "message", "lines", "50.2", "40", "50.2", "25"])

    def test_bars_are_for_what_is_counted(self) -> None:
        counted = {*json.loads(BASELINES.read_text())["release"], "lines a message"}
        computed = {"a message of 64 KiB at MTU 9000", "a Marker", "a poll beside its messages"}
        self.assertLessEqual({bar.row for bar in bars.BARS}, counted | computed)

    def test_the_excused_are_counted(self) -> None:
        for build, excused in bars.EXCUSED.items():
            recorded = json.loads(BASELINES.read_text())[build]
            for name, at in excused:
                self.assertIn(at, recorded[name])


class CommandTest(unittest.TestCase):
    def run_bench(self, *words: str) -> tuple[int, list[str], str]:
        """The status of `bench instructions` with what `phase` has measured, the cases in its JSON, and what
        it says on standard error."""
        measured = phase()
        measured.facts.update(size=1500, mtu=1500, packing="frame", resembles="")
        errors = io.StringIO()
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(instructions, "measure", return_value=[measured]),
            mock.patch.object(cache_lines, "measure", return_value=CacheLinesTest.MEASURED),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(errors),
        ):
            report = pathlib.Path(folder) / "report.json"
            loader = importlib.machinery.SourceFileLoader("bench", str(BENCH))
            specification = importlib.util.spec_from_loader(loader.name, loader)
            assert specification is not None
            module = importlib.util.module_from_spec(specification)
            loader.exec_module(module)
            arguments = ["instructions", "--program", "none", "--json", str(report), *words]
            parsed = module.parser().parse_args(arguments)
            status = parsed.run(parsed)
            cases = [at["case"] for at in json.loads(report.read_text())] if report.exists() else []
        return status, cases, errors.getvalue()

    def test_some_cases_are_written_as_json(self) -> None:
        self.assertEqual(self.run_bench("--cases", "case"), (0, ["case"], ""))

    def test_bars_of_some_cases_are_refused(self) -> None:
        refused = (2, list[str](), "scripts/bench instructions: --bars needs all cases\n")
        self.assertEqual(self.run_bench("--cases", "case", "--bars"), refused)


class CacheLinesTest(unittest.TestCase):
    MEASURED: ClassVar = [
        cache_lines.Lines("writer", 107.0, 49.0, []),
        cache_lines.Lines("target", 57.0, 29.0, []),
    ]

    def test_a_recorded_baseline_is_met(self) -> None:
        baseline = cache_lines.baseline_of(self.MEASURED)
        self.assertEqual(cache_lines.regressions(self.MEASURED, baseline), [])
        self.assertFalse(cache_lines.is_below(self.MEASURED, baseline))

    def test_the_tolerance_is_that_of_instructions(self) -> None:
        baseline = cache_lines.baseline_of(self.MEASURED)
        baseline["writer"]["beyond_first"] = 103.0
        (sentence,) = cache_lines.regressions(self.MEASURED, baseline)
        self.assertEqual(sentence, "the writer fetches 107.0 lines a message, 3.9 % more than 103.0")
        baseline["writer"]["beyond_first"] = 111.0
        self.assertTrue(cache_lines.is_below(self.MEASURED, baseline))
        self.assertEqual(len(cache_lines.regressions(self.MEASURED, {})), 2)


if __name__ == "__main__":
    unittest.main()
