"""What the rig of the adapters makes of ports, counters, results, ldd's listing and QEMU's monitor."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import subprocess
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest import mock

from adapter_rig.adapters import ADAPTERS, is_emulated, qemu
from adapter_rig.cases import (
    CASES,
    Case,
    Rig,
    kernel_counter,
    last_line,
    look,
    offers,
    parsed,
    require_pings,
    verified,
)
from adapter_rig.image import needed_libraries, plugins
from adapter_rig.table import FAILED, LEFT_OUT, PASSED, WHOLE, Table
from guest_rig.image import Image, packing_line
from guest_rig.machine import Guest, Outcome, require_done
from rig.processes import NotHere, Process, RigError

SNMP = """\
Ip: Forwarding InReceives
Ip: 2 17
Tcp: RtoAlgorithm InSegs InCsumErrors
Tcp: 1 4711 3
"""


def port(**changes: Any) -> dict[str, Any]:
    """What `warpline-tools port` prints of an adapter."""
    side = {
        "queues": 4,
        "mtu": 9216,
        "receive_checksums": True,
        "transmit_checksums": True,
        "transmit_ip_checksums": False,
        "gather": True,
        "segmentation": False,
        "joins_received": False,
    }
    whole = {
        "offered": side,
        "started": {**side, "queues": 2},
        "table_entries": 128,
        "multicast": "all",
        "interrupts": 2,
        "link": {"up": True, "megabits_per_second": 1000, "full_duplex": True},
        "link_seconds": 0.5,
        "opened_again": 2,
    }
    return {**whole, **changes}


class Ports(unittest.TestCase):
    def test_a_line_for_a_port(self) -> None:
        self.assertEqual(
            offers(port()),
            "4 queue pairs, started with 2, RSS table of 128; MTU up to 9216; checksums: receive IP and TCP, "
            "send TCP; gather yes, TSO no, LRO no; 2 receive interrupts, multicast all; link up at 1000 Mb/s "
            "after 0.50 s; opened 2 times more",
        )

    def test_what_a_port_lacks(self) -> None:
        none = dict.fromkeys(("receive_checksums", "transmit_checksums", "transmit_ip_checksums"), False)
        bare = port(
            table_entries=None,
            started={**port()["started"], **none},
            link={"up": False, "megabits_per_second": None, "full_duplex": False},
        )
        line = offers(bare)
        for part in ("no RSS", "checksums: none", "link DOWN after"):
            self.assertIn(part, line)


class Results(unittest.TestCase):
    def test_a_counter_of_the_kernel(self) -> None:
        self.assertEqual(kernel_counter(SNMP, "Tcp", "InCsumErrors"), 3)
        self.assertEqual(kernel_counter(SNMP, "Ip", "InReceives"), 17)
        for protocol, name in (("Tcp", "InReceives"), ("Udp", "InCsumErrors")):
            with self.assertRaises(RigError):
                kernel_counter(SNMP, protocol, name)

    def test_every_byte_of_the_writes_is_compared(self) -> None:
        good = {
            "verified": True,
            "corrupt_bytes": 0,
            "bytes": 8192,
            "compared_bytes": 8192,
            "messages": 2,
            "retransmitted_segments": 1,
        }
        self.assertEqual(verified(good), "8192 bytes in 2 Writes, all compared; 1 segments sent again")
        for wrong in ({"verified": False}, {"corrupt_bytes": 1}, {"compared_bytes": 4096}):
            with self.assertRaises(RigError, msg=str(wrong)):
                verified({**good, **wrong})

    def test_all_pings_are_counted_at_both_ends(self) -> None:
        require_pings(200, 200)
        with self.assertRaises(RigError):
            require_pings(200, 199)

    def test_a_report_that_is_none(self) -> None:
        self.assertEqual(parsed(last_line('noise\n{"a": 1}\n'), "it"), {"a": 1})
        self.assertEqual(parsed('[{"a": 2}]', "it"), {"a": 2})
        for text in ("", "EAL: no", "[]", "7", '{"a":'):
            with self.assertRaisesRegex(RigError, "it has printed no report", msg=text):
                parsed(last_line(text), "it")


class FakeGuest:
    """A guest that answers everything in the same way, or not at all."""

    namespace = "nowhere"

    def __init__(self, outcome: Outcome | None) -> None:
        self.outcome = outcome
        self.asked: list[str] = []

    def run(self, shell: str, _seconds: float = 60) -> Outcome:
        """Its answer."""
        self.asked.append(shell)
        if self.outcome is None:
            raise RigError("the guest does not answer")
        return self.outcome


def rig_with(outcome: Outcome | None) -> Rig:
    """A rig with such a guest."""
    return Rig(cast(Guest, FakeGuest(outcome)), ADAPTERS[0], Path("/nonexistent"))


class Rigs(unittest.TestCase):
    def test_a_first_case_that_says_nothing_of_use(self) -> None:
        for said in ("", "EAL: Error\n", "[]\n"):
            with self.assertRaises(RigError, msg=said):
                look(rig_with(Outcome(0, said)))
            with self.assertRaises(RigError, msg=said):
                rig_with(Outcome(0, said)).result()

    def test_the_guest_binds_one_adapter(self) -> None:
        rig = rig_with(Outcome(0, "0000:00:05.0 0x8086 0x10c9 3\n"))
        rig.bind()
        self.assertEqual(rig.address, "0000:00:05.0")
        for said in ("", "\n", "0000:00:05.0 0x8086\n0000:00:06.0 0x8086\n"):
            with self.assertRaisesRegex(RigError, "not bound one adapter", msg=said):
                rig_with(Outcome(0, said)).bind()

    def test_the_hosts_programs_end_though_the_guest_does_not_answer(self) -> None:
        rig = rig_with(Outcome(0, "17 /tmp/tmp.1"))
        rig.shell.start("server")
        cast(FakeGuest, rig.guest).outcome = None
        process = mock.Mock(spec=Process)
        rig._processes.append(process)
        rig.stop()
        process.stop.assert_called_once_with()
        self.assertIn("kill -KILL 17", cast(FakeGuest, rig.guest).asked[-1])


class Images(unittest.TestCase):
    def test_paths_with_spaces_are_packed(self) -> None:
        with tempfile.TemporaryDirectory(prefix="a 'b' $HOME ") as directory:
            root, initrd = Path(directory) / "its files", Path(directory) / "an initrd"
            root.mkdir()
            (root / "init").write_text("#!/bin/sh\n")
            line = packing_line(root, initrd).replace(
                "cpio --create --format=newc --quiet --owner=0:0", "sort"
            )
            subprocess.run(["bash", "-o", "pipefail", "-c", line], check=True, timeout=30)
            self.assertEqual(gzip.decompress(initrd.read_bytes()), b".\n./init\n")

    def test_libraries_that_a_program_needs(self) -> None:
        listing = (
            "/usr/bin/program:\n\tlinux-vdso.so.1 (0x7f)\n\tlibm.so.6 => /lib/libm.so.6 (0x7f)\n"
            "\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n"
        )
        self.assertEqual(needed_libraries(listing), {Path("/lib/libm.so.6")})
        with self.assertRaisesRegex(RigError, "libnone.so.1"):
            needed_libraries("\tlibnone.so.1 => not found\n")

    def test_plugins_with_their_links(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            names = ("librte_net_e1000.so.23", "librte_net_e1000.so.23.0", "librte_net_ixgbe.so.23")
            for name in names:
                (Path(directory) / name).touch()
            self.assertEqual(sorted(path.name for path in plugins(Path(directory))), list(names[:2]))


class Machines(unittest.TestCase):
    def test_the_command_line(self) -> None:
        """Each adapter is behind the IOMMU, and one with several queues has a tap with as many."""
        image = Image(Path("/k"), Path("/i"), "6.1")
        for adapter in ADAPTERS:
            machine = adapter.machine(("qemu",))
            words = machine.words(image, Path("/c"))
            devices = [words[index + 1] for index, word in enumerate(words) if word == "-device"]
            [ours] = [device for device in devices if device.startswith(adapter.model)]
            self.assertLess(
                words.index("intel-iommu,intremap=on,aw-bits=48"), words.index(ours), adapter.name
            )
            self.assertIn("netdev=net,id=link", ours)
            [tap] = [word for word in words if word.startswith("tap,")]
            self.assertEqual("queues=4" in tap, machine.tap_queues == 4, adapter.name)

    def test_qemu_unpacked_elsewhere(self) -> None:
        self.assertEqual(qemu(None), ("qemu-system-x86_64",))
        with tempfile.TemporaryDirectory() as directory, self.assertRaisesRegex(RigError, "unpacked"):
            qemu(Path(directory))

    def test_whether_qemu_has_an_adapter(self) -> None:
        """It ends with status 0 whether it has the adapter or not."""

        def probed(status: int, out: str, err: str) -> bool:
            done = subprocess.CompletedProcess([], status, out, err)
            with mock.patch("subprocess.run", return_value=done):
                return is_emulated(("qemu",), "igb")

        self.assertTrue(probed(0, "igb options:\n  addr=<str>\n", ""))
        self.assertFalse(probed(0, "", "qemu: -device igb,help: Device 'igb' not found\n"))
        for status, err in ((1, "qemu: could not load a module"), (127, "libfdt.so.1: cannot open"), (0, "")):
            with self.assertRaisesRegex(RigError, "does not say whether it has igb", msg=err):
                probed(status, "", err)
        for error in (FileNotFoundError("no qemu"), subprocess.TimeoutExpired("qemu", 60)):
            with mock.patch("subprocess.run", side_effect=error), self.assertRaisesRegex(RigError, "qemu: "):
                is_emulated(("qemu",), "igb")

    def test_the_monitors_answer(self) -> None:
        event, greeting = json.dumps({"event": "RESUME"}), json.dumps({"QMP": {}})
        require_done([greeting, event, json.dumps({"return": {}})], "set_link")
        with self.assertRaisesRegex(RigError, "set_link: no such"):
            require_done([json.dumps({"error": {"desc": "no such"}})], "set_link")
        with self.assertRaisesRegex(RigError, "ended before"):
            require_done([greeting], "set_link")


class Tables(unittest.TestCase):
    def test_cases_that_pass_fail_and_are_left_out(self) -> None:
        def play(error: Exception | None) -> Callable[[Rig], str]:
            def case(_: Rig) -> str:
                if error:
                    raise error
                return "done"

            return case

        rig = mock.Mock(spec=Rig, adapter=ADAPTERS[0], directory=Path("/nonexistent"))
        table = Table()
        cases = (
            (None, PASSED),
            (NotHere("no TSO"), LEFT_OUT),
            (RigError("broken"), FAILED),
            (KeyError("pings"), FAILED),
        )
        with (
            contextlib.redirect_stdout(io.StringIO()) as said,
            mock.patch.object(Table, "_evidence", return_value="; kept"),
        ):
            went_on = [table.play(cast(Rig, rig), Case("case", play(error))) for error, _ in cases]
            table.print()
        self.assertEqual(went_on, [True, True, False, False])
        self.assertEqual([row.outcome for row in table.rows], [outcome for _, outcome in cases])
        self.assertEqual([table.count(outcome) for outcome in (PASSED, LEFT_OUT, FAILED)], [1, 1, 2])
        self.assertEqual(rig.stop.call_count, 4)
        self.assertIn("broken; kept", said.getvalue())
        self.assertIn("a report has no 'pings'; kept", said.getvalue())

    def test_a_case_is_in_the_table_though_what_follows_it_fails(self) -> None:
        rig = mock.Mock(spec=Rig, adapter=ADAPTERS[0])
        rig.stop.side_effect = KeyboardInterrupt
        table = Table()
        with contextlib.redirect_stdout(io.StringIO()), self.assertRaises(KeyboardInterrupt):
            table.play(cast(Rig, rig), Case("case", lambda _: "done"))
        self.assertEqual([(row.case, row.outcome) for row in table.rows], [("case", PASSED)])

    def test_adapters_that_are_not_there_are_counted_apart(self) -> None:
        table = Table()
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(table.summary(), "0 passed, 0 failed, 0 left out")
            table.leave_adapter_out("igb", "this QEMU does not emulate igb")
            table.end_adapter("e1000", RigError("the guest did not start"))
        self.assertEqual(table.summary(), "0 passed, 1 failed, 0 left out; adapters left out: 1 (igb)")
        self.assertEqual([row.case for row in table.rows], [WHOLE, WHOLE])

    def test_the_first_case_is_what_the_others_build_on(self) -> None:
        self.assertEqual(CASES[0].what, "port")


if __name__ == "__main__":
    unittest.main()
