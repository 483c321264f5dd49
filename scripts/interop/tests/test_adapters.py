"""What the rig of the adapters makes of ports, counters, results, ldd's listing and QEMU's monitor."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest import mock

from adapter_rig.adapters import ADAPTERS, qemu
from adapter_rig.cases import CASES, Case, Rig, kernel_counter, offers, require_pings, verified
from adapter_rig.image import needed_libraries, plugins
from adapter_rig.table import FAILED, LEFT_OUT, PASSED, Table
from guest_rig.image import Image
from guest_rig.machine import require_done
from rig.processes import NotHere, RigError

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


class Images(unittest.TestCase):
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
        cases = ((None, PASSED), (NotHere("no TSO"), LEFT_OUT), (RigError("broken"), FAILED))
        with (
            contextlib.redirect_stdout(io.StringIO()) as said,
            mock.patch.object(Table, "_evidence", return_value="; kept"),
        ):
            for error, _ in cases:
                table.play(cast(Rig, rig), Case("case", play(error)))
            table.print()
        self.assertEqual([row.outcome for row in table.rows], [outcome for _, outcome in cases])
        self.assertEqual([table.count(outcome) for _, outcome in cases], [1, 1, 1])
        self.assertEqual(rig.stop.call_count, 3)
        self.assertIn("broken; kept", said.getvalue())

    def test_the_first_case_is_what_the_others_build_on(self) -> None:
        self.assertEqual(CASES[0].what, "port")


if __name__ == "__main__":
    unittest.main()
