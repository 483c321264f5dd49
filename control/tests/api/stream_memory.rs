//! Tests of the memory that the byte streams of a device share: it is taken as it is used, goes back, shows
//! nothing of those who had it before, and has a bound.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::byte_streams::streams;
use crate::common::{FAR, PATIENCE, PORT, Pair};
use warpline::{
    Behaviour, ByteStream, ByteStreamConfig, ByteStreamError, Device, StreamConfig, TcpListenConfig,
    UnsolicitedConfig, limits,
};

/// What a stream has at first.
const AT_FIRST: usize = limits::BYTE_STREAM_SEND_BYTES_AT_FIRST + limits::BYTE_STREAM_RECEIVE_BYTES_AT_FIRST;
/// What the pool allocates at a time.
const SLAB: usize = 2 << 20;

/// Waits until the streams of `device` have `bytes` bytes.
fn await_used(device: &Device, bytes: usize) {
    let begin = Instant::now();
    while device.stream_memory().used_bytes != bytes {
        assert!(begin.elapsed() < PATIENCE, "{:?}", device.stream_memory());
        thread::sleep(Duration::from_millis(1));
    }
}

fn exchange(from: &mut ByteStream, to: &mut ByteStream, bytes: &[u8]) {
    thread::scope(|scope| {
        scope.spawn(|| from.writer.write_all(bytes, PATIENCE).unwrap());
        let mut read = vec![0; bytes.len()];
        to.reader.read_exact(&mut read, PATIENCE).unwrap();
        assert!(read == bytes);
    });
}

#[test]
fn a_stream_takes_more_as_it_carries_more_and_gives_all_back() {
    let pair = Pair::new();
    let config = ByteStreamConfig::default();
    let (mut near, mut far) = streams(&pair.near, &pair.far, false, &config);
    for device in [&pair.near, &pair.far] {
        assert_eq!(device.stream_memory().used_bytes, AT_FIRST);
    }
    exchange(&mut near, &mut far, b"short");
    assert_eq!(pair.far.stream_memory().used_bytes, AT_FIRST);
    exchange(&mut near, &mut far, &vec![7; 5_000_000]);
    let used = pair.far.stream_memory().used_bytes;
    assert!(used > AT_FIRST + config.receive_bytes / 2, "{used}: it receives");
    let used = pair.near.stream_memory().used_bytes;
    assert!(used > AT_FIRST + config.send_bytes / 2, "{used}: it sends");
    exchange(&mut far, &mut near, &vec![8; 5_000_000]);
    drop((near, far));
    for device in [&pair.near, &pair.far] {
        await_used(device, 0);
        let memory = device.stream_memory();
        assert!((SLAB..=4 * SLAB).contains(&memory.allocated_bytes), "{memory:?}");
        assert_eq!((memory.refused, memory.spare_refused), (0, 0));
    }
}

/// With the TCP RDMA option the application reaches buffers directly; without, it reads what has come.
#[test]
fn nothing_of_a_former_connection_is_seen() {
    let pair = Pair::new();
    let unsolicited = UnsolicitedConfig { count: 4, bytes: 40_000 };
    let config = ByteStreamConfig { unsolicited: Some(unsolicited), ..ByteStreamConfig::default() };
    for round in 0..12_u8 {
        let option = round % 2 == 1;
        let (mut near, mut far) = streams(&pair.near, &pair.far, option, &config);
        // All that there is beside it is filled by the streams before and by this one.
        for stream in [&near, &far] {
            for buffer in 0..unsolicited.count as u16 {
                let mut bytes = vec![1; unsolicited.bytes];
                assert_eq!(stream.reader.copy_unsolicited(buffer, 0, &mut bytes), option);
                assert!(!option || bytes.iter().all(|byte| *byte == 0), "round {round}");
            }
        }
        for bytes in [1, 100, 70_000, 2_000_000] {
            exchange(&mut near, &mut far, &vec![0x40 + round; bytes]);
            exchange(&mut far, &mut near, &vec![0x80 + round; bytes]);
        }
        assert_eq!((near.reader.peek(&mut [0; 8]), far.reader.peek(&mut [0; 8])), (0, 0));
        drop((near, far));
        await_used(&pair.near, 0);
        await_used(&pair.far, 0);
    }
    let memory = pair.near.stream_memory();
    assert!(memory.allocated_bytes <= 5 * SLAB, "the same memory each time: {memory:?}");
}

/// Opens a connection from the near device to the far one, as byte streams.
fn open(pair: &Pair, listener: &warpline::TcpListener, config: &ByteStreamConfig) -> [Opened; 2] {
    let near = pair.near.connect_stream(SocketAddr::from((FAR, PORT)), &StreamConfig::default()).unwrap();
    let far = listener.accept(PATIENCE).unwrap();
    [near.into_byte_stream(config), far.into_byte_stream(config)]
}

type Opened = Result<ByteStream, ByteStreamError>;

#[test]
fn a_device_without_memory_says_so_and_others_go_on() {
    let pair = Pair::with(|config| config.capacity.stream_bytes = SLAB);
    let listener = pair.far.listen_streams(PORT, &TcpListenConfig::default()).unwrap();
    let config = ByteStreamConfig::default();
    let mut open_streams = Vec::new();
    let error = loop {
        match open(&pair, &listener, &config) {
            [Ok(near), Ok(far)] => open_streams.push((near, far)),
            // Both devices have as many streams, so neither has memory for another.
            [Err(near), Err(far)] => break (near, far),
            opened => panic!("{opened:?}"),
        }
    };
    assert!(matches!(error, (ByteStreamError::NoMemory, ByteStreamError::NoMemory)), "{error:?}");
    assert_eq!(open_streams.len(), SLAB / AT_FIRST);
    let memory = pair.near.stream_memory();
    assert!(memory.refused > 0 && memory.used_bytes <= memory.limit_bytes, "{memory:?}");
    assert_eq!(memory.allocated_bytes, SLAB);
    // None of them gets more, and each goes on with what it has.
    for (number, (near, far)) in open_streams.iter_mut().enumerate() {
        exchange(near, far, &vec![number as u8; 300_000]);
    }
    let memory = pair.near.stream_memory();
    assert!(memory.spare_refused > 0 && memory.allocated_bytes == SLAB, "{memory:?}");
    let used = memory.used_bytes;
    drop(open_streams.pop());
    await_used(&pair.near, used - AT_FIRST);
    await_used(&pair.far, used - AT_FIRST);
    let [near, far] = open(&pair, &listener, &config);
    exchange(&mut near.unwrap(), &mut far.unwrap(), b"there is memory again");
}

#[test]
fn two_thousand_streams_take_what_they_use() {
    const STREAMS: usize = 2000;
    let pair = Pair::new();
    let tcp = Some(Behaviour::default());
    let listener = pair.far.listen_streams(PORT, &TcpListenConfig { tcp, ..Default::default() }).unwrap();
    let config = ByteStreamConfig { events: false, ..ByteStreamConfig::default() };
    let mut all: Vec<_> = (0..STREAMS)
        .map(|number| {
            let [near, far] = open(&pair, &listener, &config);
            let (mut near, far) = (near.unwrap(), far.unwrap());
            near.writer.write_all(&(number as u32).to_be_bytes(), PATIENCE).unwrap();
            (near, far)
        })
        .collect();
    for (number, (_, far)) in all.iter_mut().enumerate() {
        let mut bytes = [0; 4];
        far.reader.read_exact(&mut bytes, PATIENCE).unwrap();
        assert_eq!(u32::from_be_bytes(bytes), number as u32);
        far.writer.write_all(&bytes, PATIENCE).unwrap();
    }
    for (number, (near, _)) in all.iter_mut().enumerate() {
        let mut bytes = [0; 4];
        near.reader.read_exact(&mut bytes, PATIENCE).unwrap();
        assert_eq!(u32::from_be_bytes(bytes), number as u32);
    }
    for device in [&pair.near, &pair.far] {
        let memory = device.stream_memory();
        assert_eq!(memory.used_bytes, STREAMS * AT_FIRST);
        assert!(memory.allocated_bytes <= STREAMS * AT_FIRST + SLAB, "{memory:?}");
    }
    drop(all);
    await_used(&pair.near, 0);
    await_used(&pair.far, 0);
}
