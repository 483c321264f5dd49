//! The buffers of DPDK devices: how many, how large, and at which NUMA node.

use dpdk::{Eal, Mempool, MempoolConfig, MempoolError, WireConfig};
use warpline_dataplane::device::SUPER_FRAME_MAX_BYTES;

use crate::handles::vdev::queue_size;
use crate::vocabulary::device_name::{DeviceKind, DeviceName};

/// Buffers of a port: as many as a core may hold back, with a ring of descriptors to spare.
const PORT_MBUFS: u32 = 16_383;
/// The least buffers of a further core of a port: those of a full transmit queue, and as many received ones
/// and some to hold back where the core has a receive queue.
const FURTHER_MBUFS_MIN: u32 = 4095;
/// Bytes of all the buffers of an end of a wire: a few windows' worth. A wire loses nothing, so little is
/// held back; and a pool's buffers are used in turn, so that a small pool stays in the caches of the two
/// cores.
const WIRE_POOL_OCTETS: u32 = 5 << 19;
/// The same, of a wire that carries super-frames: each buffer takes the largest one, and an acknowledgement
/// takes a buffer too.
const SUPER_FRAME_POOL_OCTETS: u32 = 8 << 20;
/// Buffers of a port of virtio that carries super-frames, each large enough for one: a frame in one piece
/// takes the shortest way. For each place of the two queues one, and as many to hold back.
const SUPER_FRAME_MBUFS_PER_ENTRY: u32 = 4;
/// The largest IP packet that a buffer takes of other ports that carry super-frames, in several buffers each.
/// Adapters have limits of about 16 KiB for one.
const SUPER_FRAME_PIECE_BYTES: u16 = 9000;
/// Buffers of a packet socket that takes super-frames, 64 MiB of them.
const AF_PACKET_SUPER_FRAME_MBUFS: u32 = 1023;
/// The largest IP packet that one takes, in bytes.
const AF_PACKET_SUPER_FRAME_BYTES: u16 = 65_120;
/// The same where frames are copied from the ring, whose slots hold a little more than the largest frame:
/// with the octets that a buffer has at most. The kernel sends up to some 65,300 bytes at a time.
const PACKET_SUPER_FRAME_BYTES: u16 = 65_151;
/// Buffers that a thread of the other end keeps at hand of a wire's pool: those of a few chunks, for the end
/// that sends lacks what they keep. With less than a burst, all of the pool is used in turn, and no buffer is
/// in the cache of its core any more.
const WIRE_CACHE_MBUFS: u32 = 32;
/// The part of a port's buffers that the threads of several cores keep at hand, together.
const CACHED_PART: u32 = 8;
/// Bytes of a buffer beyond the largest IP packet: for the Ethernet header, and because `net_af_packet`
/// wants to fit the frames of its ring, which are a multiple of a cache line or more.
const SPARE_OCTETS: u16 = 256;

/// Makes the pools of the port of `device`, one for each of its cores. The first receives for all cores if
/// the port has one queue.
pub(super) fn port_pools(
    eal: Eal,
    device: &DeviceName,
    cores: usize,
    node: Option<u32>,
) -> Result<Vec<Mempool>, MempoolError> {
    let (mbufs, octets) = match (device.has_super_frames(), device.kind()) {
        (false, _) => (PORT_MBUFS, device.mtu()),
        (true, DeviceKind::Vhost | DeviceKind::VirtioUser) => {
            let mbufs = SUPER_FRAME_MBUFS_PER_ENTRY * u32::from(queue_size(device));
            (mbufs.next_power_of_two() - 1, SUPER_FRAME_MAX_BYTES as u16)
        }
        // Its ring holds frames in one piece, and its driver wants each to fit a buffer.
        (true, DeviceKind::AfPacket) => (AF_PACKET_SUPER_FRAME_MBUFS, AF_PACKET_SUPER_FRAME_BYTES),
        (true, DeviceKind::Packet) => (AF_PACKET_SUPER_FRAME_MBUFS, PACKET_SUPER_FRAME_BYTES),
        (true, _) => (PORT_MBUFS, device.mtu().max(SUPER_FRAME_PIECE_BYTES)),
    };
    let further = further_mbufs(mbufs, cores);
    let pool = |core| {
        let mbufs = if core == 0 { mbufs } else { further };
        let (data_octets, cache_mbufs) = (data_octets(octets), port_cache_mbufs(mbufs, cores));
        Mempool::new(eal, MempoolConfig { mbufs, data_octets, cache_mbufs, node })
    };
    (0..cores).map(pool).collect()
}

/// Returns the buffers of each core after the first, which has `mbufs`: its share of what a single core would
/// have and a quarter more, for flows do not come to all cores in equal numbers.
fn further_mbufs(mbufs: u32, cores: usize) -> u32 {
    let all = mbufs + 1;
    let least = (FURTHER_MBUFS_MIN + 1).min(all / 2);
    (all / 4 * 5 / cores as u32).next_power_of_two().clamp(least, all) - 1
}

/// Returns the buffers that a thread keeps at hand of a pool of `mbufs`: frames of one core are freed by all.
fn port_cache_mbufs(mbufs: u32, cores: usize) -> u32 {
    let most = MempoolConfig::default().cache_mbufs;
    if cores == 1 { most } else { most.min(mbufs / CACHED_PART / cores as u32) }
}

/// Makes the pool of a core whose wires lead to `receivers` cores.
pub(super) fn wire_pool(eal: Eal, config: &WireConfig, receivers: usize) -> Result<Mempool, MempoolError> {
    let most_octets = config.mtu_bytes.max(config.super_frame_bytes);
    let data_octets = data_octets(u16::try_from(most_octets).unwrap_or(u16::MAX));
    let pool_octets = if config.super_frame_bytes > 0 { SUPER_FRAME_POOL_OCTETS } else { WIRE_POOL_OCTETS };
    // A power of two less one wastes no memory: 255 jumbo frames, 1023 of 1500 bytes, 63 super-frames.
    let mbufs = (pool_octets / u32::from(data_octets)).next_power_of_two() / 2 - 1;
    let cache_mbufs = wire_cache_mbufs(mbufs, receivers);
    Mempool::new(eal, MempoolConfig { mbufs, data_octets, cache_mbufs, ..MempoolConfig::default() })
}

/// Returns the buffers that each thread of `receivers` keeps at hand of a wire's pool of `mbufs`: together
/// they leave most of it.
fn wire_cache_mbufs(mbufs: u32, receivers: usize) -> u32 {
    if receivers == 1 { WIRE_CACHE_MBUFS } else { WIRE_CACHE_MBUFS.min(mbufs / 4 / receivers as u32) }
}

fn data_octets(mtu_octets: u16) -> u16 {
    mtu_octets.saturating_add(SPARE_OCTETS).max(MempoolConfig::default().data_octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All cores have a quarter more buffers than one would have, and the first as many as it alone: where
    /// the port has one queue, it receives for all.
    #[test]
    fn cores_share_the_buffers_of_a_port() {
        let further = [2, 3, 4, 8, 64].map(|cores| further_mbufs(PORT_MBUFS, cores));
        assert_eq!(further, [16_383, 8191, 8191, 4095, 4095]);
        // Super-frames: half of the first core's.
        assert_eq!(further_mbufs(AF_PACKET_SUPER_FRAME_MBUFS, 2), 1023);
        assert_eq!(further_mbufs(AF_PACKET_SUPER_FRAME_MBUFS, 8), 511);
    }

    #[test]
    fn a_thread_keeps_a_burst_of_a_wire_where_the_pool_has_room_for_that() {
        let cached = [(1023, 1), (1023, 2), (1023, 8), (255, 2), (255, 8), (63, 1)];
        let cached = cached.map(|(mbufs, receivers)| wire_cache_mbufs(mbufs, receivers));
        assert_eq!(cached, [32, 32, 31, 31, 7, 32]);
    }

    /// However many threads free frames of a pool, most of it is not in their caches, which hold half as much
    /// again before they give buffers back.
    #[test]
    fn the_threads_of_all_cores_leave_most_of_a_pool() {
        assert_eq!(port_cache_mbufs(PORT_MBUFS, 1), MempoolConfig::default().cache_mbufs);
        for cores in 2..=64 {
            for mbufs in [PORT_MBUFS, FURTHER_MBUFS_MIN, 511] {
                let cached = port_cache_mbufs(mbufs, cores) * 3 / 2 * cores as u32;
                assert!(cached <= mbufs / 5, "{cores} cores: {cached} of {mbufs}");
            }
        }
    }
}
