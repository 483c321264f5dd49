"""What the cases of unmodified programs are, and what counts as their end."""

from __future__ import annotations

import unittest
from dataclasses import replace

from verbs_rig.case import BOTH, CLIENT_ADDRESS, ONE_HOST, TWO_HOSTS, Case, Expected
from verbs_rig.cases import all_cases
from verbs_rig.counters import past_the_kernel, sent_resets
from verbs_rig.fabtests import FABTESTS, SKIPS
from verbs_rig.mpi import OPENMPI, least_carried
from verbs_rig.playing import CARRIED_LEAST, FAILED, PASSED, UNSUPPORTED, judge, reported, too_little

PROC_NET = """\
Tcp: RtoAlgorithm InErrs OutRsts InCsumErrors
Tcp: 1 0 60 0
TcpExt: SyncookiesSent OutOctets
TcpExt: 7 8
IpExt: InNoRoutes InOctets OutOctets
IpExt: 0 9000 4000
Ip6InOctets                     \t500
Ip6OutOctets                    \t700
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls
    lo:    9000      10    0    0    0     0          0         0     9000      10    0    0    0     0
   wl0:   12000      20    0    0    0     0          0         0   104700      30    0    0    0     0
"""
PAIR = Case("package", ("client",), ("server",), shows=r"^rate: (.*)|^done")


class Places(unittest.TestCase):
    def test_programs_are_played_in_both(self) -> None:
        for case in all_cases():
            self.assertEqual(case.places, BOTH if case.package != OPENMPI else case.places[:1], case)
            self.assertLessEqual(set(case.quick), set(case.places), case)

    def test_quick_cases_are_few_on_one_host(self) -> None:
        quick = [place for case in all_cases() for place in case.quick]
        self.assertEqual((quick.count(TWO_HOSTS[0]), quick.count(ONE_HOST[0])), (9, 3))

    def test_lines_are_distinct(self) -> None:
        lines = [f"{place} {case}" for case in all_cases() for place in case.places]
        self.assertEqual(len(set(lines)), len(lines))


class Counters(unittest.TestCase):
    def test_resets_of_a_kernel(self) -> None:
        self.assertEqual(sent_resets(PROC_NET), 60)

    def test_bytes_past_the_kernel(self) -> None:
        """What the interface has sent, without the kernel's packets of IPv4 and IPv6."""
        self.assertEqual(past_the_kernel(PROC_NET, "wl0"), 100_000)
        self.assertEqual(past_the_kernel(PROC_NET, "lo"), 4300)

    def test_bytes_that_have_to_be_carried(self) -> None:
        self.assertEqual(too_little(PAIR, CARRIED_LEAST), "")
        self.assertIn("carried 299 bytes", too_little(PAIR, CARRIED_LEAST - 1))
        self.assertIn("not 5000", too_little(replace(PAIR, carried=5000), 4999))
        self.assertEqual(too_little(replace(PAIR, server=()), -90), "", "a program alone")

    def test_bytes_of_jobs(self) -> None:
        self.assertEqual(least_carried("alltoall", 4, 16, 16), 4 * 3 * (4 + 8 + 16))
        self.assertEqual(least_carried("ring", 4, 1000, 1000), 8000)
        self.assertEqual(least_carried("latency", 2, 8, 50), 2 * 8 * 50)
        self.assertEqual(least_carried("bandwidth", 2, 8, 64), 8 * 64)


class Outcomes(unittest.TestCase):
    def test_what_is_reported(self) -> None:
        self.assertEqual(reported(PAIR, "first\nrate: 5 Gb/s \n"), "5 Gb/s")
        self.assertEqual(reported(replace(PAIR, shows="rate"), "rate: 5"), "")

    def test_outcomes(self) -> None:
        self.assertEqual(judge(PAIR, "", "5 Gb/s", ""), (PASSED, "5 Gb/s"))
        self.assertEqual(judge(PAIR, "the client ends", "", ""), (FAILED, "the client ends"))
        refused = replace(PAIR, expected=Expected.UNSUPPORTED, reason="there is none")
        self.assertEqual(judge(refused, "ends", "", "warpline: no XRC"), (UNSUPPORTED, "there is none"))
        self.assertEqual(judge(refused, "ends", "", "")[0], FAILED, "the library says nothing")
        measured = replace(refused, expected=Expected.MEASURED)
        self.assertEqual(judge(measured, "ends", "", "")[0], UNSUPPORTED)
        self.assertEqual(judge(measured, "", "", "")[0], PASSED)


class Fabtests(unittest.TestCase):
    def test_both_providers(self) -> None:
        cases = [case for case in all_cases() if case.package == FABTESTS]
        for provider, alone, pairs in (("verbs", 7, 19), ("verbs;ofi_rxm", 8, 34)):
            some = [case for case in cases if case.client[case.client.index("-p") + 1] == provider]
            self.assertEqual(len([case for case in some if not case.server]), alone)
            self.assertEqual(len([case for case in some if case.server]), pairs)

    def test_an_unknown_provider_is_no_reason_to_skip(self) -> None:
        for case in all_cases():
            if case.package == FABTESTS:
                self.assertEqual((case.status, case.skips), (61, frozenset()) if case.status else (0, SKIPS))

    def test_clients_have_the_address_of_their_place(self) -> None:
        for case in all_cases():
            if case.package == FABTESTS and case.server:
                self.assertIn(CLIENT_ADDRESS, case.client)
                self.assertNotIn(CLIENT_ADDRESS, case.server)


if __name__ == "__main__":
    unittest.main()
