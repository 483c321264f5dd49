"""Tests of the closing table of scripts/demo."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import demo_report
from benchmarks import machine


def run(
    size: int,
    gbit_per_s: float,
    corrupt_bytes: int = 0,
    verified: bool = True,
    cpus: tuple[int, ...] = (0, 1),
) -> dict[str, object]:
    return {
        "size": size,
        "gbit_per_s": gbit_per_s,
        "corrupt_bytes": corrupt_bytes,
        "bytes": 1000,
        "compared_bytes": 20 if verified else 0,
        "cpus": list(cpus),
    }


class DemoReportTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("sweep.json", [run(64, 1.0), run(65536, 19.0)])
        self.write("warpline.json", run(65536, 20.0))
        self.write("floor.json", {"gbit_per_s": 40.0})
        (self.folder / "idle").write_text("97\n")
        (self.folder / "idle-after").write_text("98\n")
        (self.folder / "stat").write_text("cpu  100 0 100 700 100 0 0 50 0 0\n")
        (self.folder / "stat-after").write_text("cpu  200 0 200 1500 100 0 0 50 0 0\n")

    def write(self, name: str, value: object) -> None:
        (self.folder / name).write_text(json.dumps(value))

    def table(self) -> tuple[int, dict[str, str]]:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            status = demo_report.main(["table", str(self.folder)])
        return status, {line[:40].strip(): line[40:].strip() for line in output.getvalue().splitlines()}

    def test_without_iperf3(self) -> None:
        status, lines = self.table()
        self.assertEqual(status, 0)
        self.assertEqual(lines["warpline, Gb/s"], "20.00")
        self.assertEqual(lines["warpline / floor"], "0.50")
        self.assertEqual(lines["iperf3 over veth, Gb/s"], "not measured")
        self.assertEqual(lines["compared, % of all bytes"], "2.00")
        self.assertEqual(lines["idle before the start, %"], "97")
        self.assertEqual(list(lines.items())[-1], ("corrupt_bytes", "0"))

    def test_with_iperf3(self) -> None:
        self.write("iperf3.json", {"measurements": [{"figures": {"gbit_per_s": {"median": 16.0}}}]})
        _, lines = self.table()
        self.assertEqual(lines["iperf3 over veth, Gb/s"], "16.00")
        self.assertEqual(lines["warpline / iperf3"], "1.25")

    def test_with_iperf3_left_out(self) -> None:
        self.write("iperf3.json", {"measurements": []})
        self.assertEqual(self.table()[1]["iperf3 over veth, Gb/s"], "not measured")

    def test_corruption_anywhere_fails(self) -> None:
        self.write("sweep.json", [run(64, 1.0, corrupt_bytes=3)])
        status, lines = self.table()
        self.assertEqual((status, lines["corrupt_bytes"]), (1, "3"))

    def test_an_unverified_run_fails(self) -> None:
        self.write("warpline.json", run(65536, 20.0, verified=False))
        status, lines = self.table()
        self.assertEqual((status, lines["a sample of each size compared"]), (1, "no: sizes [65536]"))

    def test_a_sweep_may_come_one_object_a_line(self) -> None:
        (self.folder / "sweep.json").write_text(
            "\n".join(json.dumps(run(size, 1.0, size)) for size in (1, 2))
        )
        self.assertEqual(self.table()[1]["corrupt_bytes"], "3")

    def said(self) -> str:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            demo_report.main(["table", str(self.folder)])
        return output.getvalue()

    def test_an_idle_machine_is_not_doubted(self) -> None:
        self.assertTrue(self.said().startswith("warpline, Gb/s"), self.said())

    def test_the_figures_of_a_busy_machine_are_doubted(self) -> None:
        for name in ("idle", "idle-after"):
            (self.folder / name).write_text("80\n")
            said = self.said()
            self.assertTrue(said.startswith("These figures mean little: other processes ran: "), said)
            self.assertIn("80 %", said.splitlines()[0])
            self.assertTrue(said.rstrip().endswith("0"), "the table is last")
            (self.folder / name).write_text("97\n")

    def test_stolen_time_is_doubted(self) -> None:
        (self.folder / "stat-after").write_text("cpu  200 0 200 1400 100 0 0 150 0 0\n")
        said = self.said()
        self.assertIn("the hypervisor gave 10 % of this machine's time to others", said.splitlines()[0])
        self.assertEqual(self.table()[1]["stolen by the hypervisor, %"], "10")

    def test_one_cpu_for_both_ends_is_named(self) -> None:
        self.write("warpline.json", run(65536, 20.0, cpus=(1,)))
        self.assertIn("polled both ends (CPU 1)", self.said().splitlines()[0])

    def test_idle_share(self) -> None:
        before = "cpu  100 0 100 700 100 0 0 0 0 0"
        after = "cpu  110 0 110 770 110 0 0 0 0 0"
        self.assertEqual(machine.idle_percentage(before, after), 80)
        self.assertEqual(machine.idle_percentage(before, before), 0)

    def test_a_wrong_command_line_says_what_to_do(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(demo_report.main(["tables"]), 2)
        self.assertIn("demo_report.py table DIR", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
