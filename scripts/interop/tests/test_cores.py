"""What the rig makes of a device of several cores: its name, and what each core has carried."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from rig.built import BENCHMARK
from rig.cores import judge_clients, judge_file, judge_many, judge_shares
from rig.networks import AfPacket, ProgramNetwork, Queues, cpu_list
from rig.processes import NotHere, Process, RigError
from siw_rig.ours import Ours, Place


def core(connections: int, fpdus: int = 0, dropped: int = 0) -> dict[str, int]:
    """What one core says."""
    return {
        "connections": connections,
        "fpdus_received": fpdus,
        "fpdus_sent": fpdus,
        "not_handed_over": dropped,
    }


def by_core(*cores: dict[str, int] | None, queues: str = "one") -> dict[str, Any]:
    """What a device says of its cores."""
    return {"queues": queues, "cores": list(cores)}


def network(queues: Queues = Queues.ONE) -> ProgramNetwork:
    """One that is never made."""
    return AfPacket(Path("/nonexistent")).on_cores(2, queues)


class Names(unittest.TestCase):
    def test_a_cpu_for_each_core(self) -> None:
        with mock.patch("os.sched_getaffinity", return_value={5, 2, 3}):
            self.assertEqual(cpu_list(2), "2+3")
            self.assertTrue(network().addressed_device().endswith(",cores=2+3,queues=one"))
            for queues in (Queues.SORTED, Queues.EACH):
                self.assertTrue(network(queues).addressed_device().endswith(",cores=2+3"))
            self.assertNotIn("cores", AfPacket(Path("/nonexistent")).addressed_device())
            with self.assertRaisesRegex(NotHere, "4 cores want a CPU each"):
                cpu_list(4)

    def test_the_queues_are_in_the_name(self) -> None:
        self.assertEqual(network().name, "net_af_packet, 2 cores, queues: one")
        name = "net_af_packet, 2 cores, queues: one for each core, which sorts it"
        self.assertEqual(network(Queues.SORTED).name, name)


class Carried(unittest.TestCase):
    def test_a_file_is_at_one_core(self) -> None:
        told = by_core(core(0), core(1, 40))
        line = "at core 1: 40 FPDUs received, 40 sent"
        self.assertEqual(judge_file(network(), told, 1), line)
        self.assertEqual(judge_file(network(), told, None), line)
        for wrong, asked in (
            (told, 0),
            (by_core(core(1, 40), core(1)), None),
            (by_core(core(0), core(0)), None),
            (by_core(core(0, 3), core(1, 40)), 1),
            (by_core(core(0), core(1, 40, dropped=2)), 1),
            (by_core(core(0), None), 1),
            (by_core(core(1, 40)), 0),
        ):
            with self.assertRaises(RigError, msg=str(wrong)):
                judge_file(network(), wrong, asked)

    def test_an_adapter_fills_the_queues_as_expected(self) -> None:
        shares = (core(10, 70), core(12, 80))
        line = "connections by core 10, 12; FPDUs received 70, 80"
        for queues in Queues:
            told = by_core(*shares, queues=queues.value)
            self.assertEqual(judge_many(network(queues), told), line)
        told = by_core(*shares, queues="one for each core")
        for other in ("one", "one for each core, with another hash", "one for each core, which sorts it"):
            with self.assertRaisesRegex(RigError, "queues: one for each core / one"):
                judge_many(network(Queues.EACH), by_core(*shares, queues=other))
        with self.assertRaisesRegex(RigError, "queues"):
            judge_many(network(), told)

    def test_each_core_has_its_share(self) -> None:
        self.assertEqual(judge_shares([75, 25]), "connections by core 75, 25")
        with self.assertRaisesRegex(RigError, "76, 24: too few"):
            judge_shares([76, 24])
        clients = [{"core": number % 2} for number in range(9)]
        self.assertEqual(judge_clients(network(), clients), "connections by core 5, 4")
        with self.assertRaisesRegex(RigError, "9, 0: too few"):
            judge_clients(network(), [{"core": 0}] * 9)


class Siw(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def ours(self, cores: int) -> Ours:
        """Our end, of which nothing runs."""
        return Ours(Place(None, "af_packet:e", "", 1500, "198.18.0.2", 24, cores), self.directory, BENCHMARK)

    def written(self, ours: Ours, text: str) -> None:
        """Our end has written this."""
        (self.directory / "1-ping.json").write_text(text)
        process = mock.Mock(spec=Process)
        process.name = "1-ping"
        ours.written(process)

    def test_connections_are_counted_by_core(self) -> None:
        ours = self.ours(2)
        self.written(ours, '[{"core": 1}, {"core": 0}, {"core": 1}]')
        self.written(ours, '{"by_core": [{"core": 1, "connections": 99}, {"core": 0, "connections": 100}]}')
        self.assertEqual(ours.by_core(), "connections by core: 101, 101")
        alone = self.ours(2)
        self.written(alone, '{"by_core": [{"core": 0, "connections": 19}]}')
        self.assertEqual(alone.by_core(), "connections by core: 19, 0")
        self.written(alone, '{"by_core": [{"core": 0, "connections": 1}]}')
        with self.assertRaisesRegex(RigError, "20, 0: none at one of them"):
            alone.by_core()

    def test_each_core_connects_in_turn(self) -> None:
        for cores, asked in ((1, [[], [], []]), (2, [["--core", "0"], ["--core", "1"], ["--core", "0"]])):
            ours = self.ours(cores)
            with mock.patch("siw_rig.ours.Process") as process:
                for _ in asked:
                    ours.connect(["198.18.0.1:7174"], 1)
            lines = [call.args[2] for call in process.call_args_list]
            self.assertEqual([line[line.index("198.18.0.1:7174") + 1 :] for line in lines], asked)


if __name__ == "__main__":
    unittest.main()
