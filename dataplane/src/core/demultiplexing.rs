//! Demultiplexing: the connection that segments with given addresses and ports are for.

use crate::conn::Table;
use crate::device::Device;
use crate::endpoint::Connection;
use crate::net::Host;
use crate::net::flow::FlowKey;
use crate::net::input::Ingress;
use crate::wire::flow::Flow;

/// Returns the slot of the connection that segments with `flow` are for. The table remembers that of the last
/// flows.
#[inline]
pub(super) fn find<D: Device>(
    table: &mut Table<Connection>,
    host: &Host<D>,
    flow: &Flow,
    ingress: Ingress,
) -> Option<u32> {
    let recent = table.recent(flow, ingress.is_loopback());
    recent.or_else(|| look_up(table, host, flow, ingress))
}

/// Looks the connection up by its addresses and ports. The addresses are checked when it is looked up for the
/// first time.
#[inline(never)]
fn look_up<D: Device>(
    table: &mut Table<Connection>,
    host: &Host<D>,
    flow: &Flow,
    ingress: Ingress,
) -> Option<u32> {
    let slot = table.find(&FlowKey::of_received(flow))?;
    if !host.neighbourhood.may_have_connection(flow, ingress) {
        return None;
    }
    table.remember(*flow, ingress.is_loopback(), slot);
    Some(slot)
}
