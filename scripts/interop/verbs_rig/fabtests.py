"""The quick suite of fabtests, libfabric's own tests, for its providers over verbs.

The cases are those that ``runfabtests.sh -t quick`` of fabtests 1.17 plays, without those that its exclusion
file for the provider names; so are the rules for what is skipped.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from .case import CLIENT_ADDRESS, Case, Expected
from .pair import SERVER

FABTESTS: Final = "fabtests"
PORT, OUT_OF_BAND_PORT = 9228, 3000
OUT_OF_BAND: Final = ("fi_av_xfer", "fi_multi_ep", "fi_multi_recv", "fi_unexpected_msg")
"""The programs whose server first waits for a connection of the kernel's."""
SKIPS: Final = frozenset((errno.ENODATA, errno.ENOSYS))
ALONE: Final = (
    f"fi_getinfo_test -s {CLIENT_ADDRESS} {SERVER}",
    "fi_dom_test -n 2",
    "fi_eq_test",
    "fi_cq_test",
    "fi_mr_test",
    "fi_cntr_test",
)
MESSAGES: Final = (
    "fi_cm_data",
    "fi_cq_data -e msg",
    "fi_msg",
    "fi_msg_epoll",
    "fi_msg_sockets",
    "fi_poll -t queue",
    "fi_poll -t counter",
    "fi_shared_ctx -e msg --no-tx-shared-ctx",
    "fi_multi_ep -e msg -v",
    "fi_msg_inject -A inject -v",
    "fi_msg_inject -N -A inject -v",
    "fi_bw -e msg -v -T 1",
    "fi_msg_pingpong -I 5",
    "fi_msg_pingpong -I 5 -v",
    "fi_msg_bw -I 5",
    "fi_msg_bw -I 5 -v",
    "fi_rma_bw -e msg -o write -I 5",
    "fi_rma_bw -e msg -o read -I 5",
    "fi_rma_bw -e msg -o writedata -I 5",
)
"""Connected endpoints: the provider ``verbs``."""
DATAGRAMS: Final = (
    "fi_av_xfer -e rdm",
    "fi_cq_data -e rdm",
    "fi_poll -t queue",
    "fi_poll -t counter",
    "fi_rdm",
    "fi_rdm -U",
    "fi_rdm_tagged_peek",
    "fi_multi_ep -e rdm -v",
    "fi_recv_cancel -e rdm -V",
    "fi_unexpected_msg -e rdm -I 10",
    "fi_bw -e rdm -v -T 1",
    "fi_bw -e rdm -v -T 1 -U",
    "fi_rdm_multi_client -C 10 -I 5",
    "fi_rdm_multi_client -C 10 -I 5 -U",
    "fi_rma_bw -e rdm -o write -I 5",
    "fi_rma_bw -e rdm -o write -I 5 -U",
    "fi_rma_bw -e rdm -o read -I 5",
    "fi_rma_bw -e rdm -o read -I 5 -U",
    "fi_rma_bw -e rdm -o writedata -I 5",
    "fi_rma_bw -e rdm -o writedata -I 5 -U",
    "fi_rdm_cntr_pingpong -I 5",
    "fi_multi_recv -e rdm -I 5",
    "fi_rdm_pingpong -I 5",
    "fi_rdm_pingpong -I 5 -U",
    "fi_rdm_pingpong -I 5 -v",
    "fi_rdm_pingpong -I 5 -v -U",
    "fi_rdm_tagged_pingpong -I 5",
    "fi_rdm_tagged_pingpong -I 5 -U",
    "fi_rdm_tagged_pingpong -I 5 -v",
    "fi_rdm_tagged_pingpong -I 5 -v -U",
    "fi_rdm_tagged_bw -I 5",
    "fi_rdm_tagged_bw -I 5 -U",
    "fi_rdm_tagged_bw -I 5 -v",
    "fi_rdm_tagged_bw -I 5 -v -U",
)
"""Reliable datagrams: the provider ``verbs;ofi_rxm``, which makes them of messages."""

NOT_ON_IWARP: Final = {
    "fi_cq_data -e rdm": "libfabric has no data in completions on iWARP, and ofi_rxm does not say so",
}


def fabtests() -> Iterator[Case]:
    """The suite for one provider after the other."""
    yield from _suite("verbs", "fi_msg", ALONE, MESSAGES)
    addresses = f"fi_av_test -g {SERVER} -n 1 -s {CLIENT_ADDRESS} -e rdm"
    yield from _suite("verbs;ofi_rxm", "fi_rdm", (*ALONE, addresses), DATAGRAMS)


def _suite(provider: str, plain: str, alone: tuple[str, ...], pairs: tuple[str, ...]) -> Iterator[Case]:
    """``plain`` is given a provider's name that there is not, and has to say so."""
    base = Case(FABTESTS, (), skips=SKIPS, seconds=60)

    def words(line: str, *more: str) -> tuple[str, ...]:
        return (*line.split(), "-p", provider, *more)

    unknown = replace(base, client=words(f"{plain} g00n13s"), label=f"g00n13s -p {provider}")
    yield replace(unknown, status=errno.ENODATA, skips=frozenset())
    for line in (*alone, *pairs):
        program, *arguments = line.split(" -s ")[0].split()
        case = replace(base, label=f"{' '.join(arguments)} -p {provider}".strip())
        if line in NOT_ON_IWARP:
            case = replace(case, expected=Expected.MEASURED, reason=NOT_ON_IWARP[line])
        if line in alone:
            yield replace(case, client=words(line))
            continue
        yield replace(
            case,
            client=words(line, "-s", CLIENT_ADDRESS, SERVER),
            server=words(line, "-s", SERVER),
            port=OUT_OF_BAND_PORT if program in OUT_OF_BAND else PORT,
        )
