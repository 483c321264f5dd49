"""Tests of how scripts/bench looks for allocations, locks and system calls."""

import collections
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from benchmarks import hot_path
from benchmarks.callgrind import Place, Profile
from benchmarks.instructions import Phase

CORE = Place("warpline_dataplane::core::Core<D>::poll_once", "/x/dataplane/src/core/mod.rs")
# As strace -f writes it: calls in progress at the beginning, calls that another thread interrupts, signals.
TRACE = """\
21792 restart_syscall(<... resuming interrupted read ...> <unfinished ...>
21794 sched_yield()                     = 0
21797 futex(0x55d4516d32c8, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL <unfinished ...>
21794 sched_yield( <unfinished ...>
21797 <... futex resumed>)              = -1 EAGAIN (Resource temporarily unavailable)
21794 <... sched_yield resumed>)        = 0
21797 --- SIGTERM {si_signo=SIGTERM} ---
21797 +++ exited with 0 +++
"""


def profile(*places: Place, called: str = "") -> Profile:
    """A profile with a poll, with other places, and with a function that the poll calls."""
    found = Profile(collections.Counter(dict.fromkeys((CORE, *places), 1)))
    if called:
        found.called[CORE, called] = 1
    return found


class LibraryCallsTest(unittest.TestCase):
    def test_a_poll_may_compute(self) -> None:
        deallocate = Place(
            "<alloc::raw_vec::RawVecInner>::deallocate", "/rustc/x/library/alloc/src/raw_vec/mod.rs"
        )
        template = Place(
            "net::header_template::HeaderTemplate::write", "/x/dataplane/src/net/header_template.rs"
        )
        others = ("__memcpy_avx_unaligned_erms", "rte_pktmbuf_free_bulk", "clock::read_tsc", "frees")
        for called in others:
            self.assertEqual(hot_path.library_calls(profile(deallocate, template, called=called)), [])

    def test_allocations_locks_and_system_calls_are_found(self) -> None:
        for called in (
            *("malloc", "free", "realloc", "malloc'2", "free@plt", "rte_zmalloc_socket", "rte_free"),
            *("pthread_mutex_lock", "rte_spinlock_lock", "sem_post"),
            *("syscall", "write", "pwritev", "recvmsg", "epoll_wait", "ppoll", "clock_nanosleep", "ioctl"),
        ):
            self.assertEqual(hot_path.library_calls(profile(called=called)), [called])

    def test_locks_that_were_inlined_are_found(self) -> None:
        for file in (
            "/rustc/x/library/std/src/sys/sync/mutex/futex.rs",
            "/usr/include/dpdk/generic/rte_spinlock.h",
        ):
            self.assertEqual(hot_path.library_calls(profile(Place(CORE.function, file))), [file])

    def test_a_fault_names_case_and_end(self) -> None:
        clean = Phase("packed-64", "message", {}, {"writer": profile(), "target": profile()})
        self.assertEqual(hot_path.faults([clean]), [])
        faulty = Phase("packed-64", "message", {}, {"writer": profile(called="malloc"), "target": profile()})
        self.assertEqual(hot_path.faults([clean, faulty]), ["packed-64: the writer enters malloc"])


class TraceTest(unittest.TestCase):
    def test_each_call_counts_once_for_its_thread(self) -> None:
        calls = hot_path.calls_by_thread(TRACE.splitlines())
        expected = {21792: {"restart_syscall": 1}, 21794: {"sched_yield": 2}, 21797: {"futex": 1}}
        self.assertEqual(calls, expected)

    def test_only_threads_that_poll_are_judged(self) -> None:
        asleep = hot_path.Thread("control", 0.4, collections.Counter(poll=3))
        polling = hot_path.Thread("core", 99.0, collections.Counter())
        self.assertEqual(hot_path.calls_of_polling_threads([asleep, polling]), [])
        calling = hot_path.Thread("core", 50.0, collections.Counter(futex=2, read=1))
        (sentence,) = hot_path.calls_of_polling_threads([asleep, polling, calling])
        self.assertEqual(sentence, "a polling thread called the system: futex 2, read 1")

    def test_a_watch_of_nothing_is_no_success(self) -> None:
        asleep = hot_path.Thread("control", 0.4, collections.Counter())
        self.assertEqual(hot_path.calls_of_polling_threads([asleep]), ["no thread polled"])


if __name__ == "__main__":
    unittest.main()
