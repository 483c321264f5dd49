//! Tests of what keeps a socket from being opened. They need root.
#![allow(missing_docs)]
#![expect(unsafe_code, reason = "namespaces have no safe interface")]

mod common;

use std::error::Error;

use common::{config, in_namespace, make_veth, open, run};
use packet::{Config, FRAME_MAX_OCTETS, Fanout, Filter, PacketError, PacketSocket};

fn refusal(config: &Config<'_>) -> PacketError {
    PacketSocket::open(config).expect_err("it opens")
}

#[test]
fn interface_has_to_be_an_ethernet_interface() {
    in_namespace(|| {
        let error = refusal(&config("none"));
        assert!(matches!(&error, PacketError::NoInterface { interface } if interface == "none"));
        assert_eq!(error.to_string(), "there is no interface 'none'");
        for name in ["", "sixteen-octets-0", "a\0b"] {
            assert!(matches!(refusal(&config(name)), PacketError::InterfaceName { .. }), "{name:?}");
        }
        let error = refusal(&config("lo"));
        assert!(matches!(error, PacketError::NotEthernet { hardware: 772, .. }), "{error:?}");
    });
}

#[test]
fn sizes_have_limits() {
    in_namespace(|| {
        make_veth();
        for frame_octets in [0, 13, FRAME_MAX_OCTETS + 1, usize::MAX] {
            let error = refusal(&Config { frame_octets, ..config("near") });
            assert!(matches!(error, PacketError::FrameSize { .. }), "{error:?}");
        }
        for frames in [0, (1 << 20) + 1, usize::MAX] {
            for config in [
                Config { receive_frames: frames, ..config("near") },
                Config { transmit_frames: frames, ..config("near") },
            ] {
                let error = refusal(&config);
                assert!(matches!(error, PacketError::FrameCount { .. }), "{error:?}");
            }
        }
        for frame_octets in [14, 60, 1514, 1518, 9018, FRAME_MAX_OCTETS] {
            for frames in [1, 2, 100, 257] {
                let config = Config {
                    frame_octets,
                    receive_frames: frames,
                    transmit_frames: frames,
                    ..config("near")
                };
                let socket = open(&config);
                assert!(socket.receive_frames() >= frames);
            }
        }
    });
}

#[test]
fn group_of_another_kind_is_refused() {
    in_namespace(|| {
        make_veth();
        let _member = open(&Config { fanout: Some(Fanout::Group(5)), ..config("near") });
        // A group belongs to one interface.
        let error = refusal(&Config { fanout: Some(Fanout::Group(5)), ..config("far") });
        assert!(error.to_string().starts_with("cannot join the fanout group"), "{error}");
        assert!(error.source().is_some());
    });
}

#[test]
fn interface_may_be_down() {
    in_namespace(|| {
        make_veth();
        run("ip", "link set near down");
        let mut socket = open(&config("near"));
        assert!(socket.take_error().is_some());
        run("ip", "link set near up");
        assert!(socket.take_error().is_none());
    });
}

#[test]
fn it_takes_a_capability() {
    in_namespace(|| {
        make_veth();
        // SAFETY: numbers. The system call itself changes this thread alone, and drops its capabilities.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
        assert_eq!(result, 0);
        let error = refusal(&config("near"));
        assert!(matches!(error, PacketError::Denied { .. }), "{error:?}");
        assert!(error.to_string().contains("CAP_NET_RAW"));
    });
}

#[test]
fn filter_has_a_limit() {
    in_namespace(|| {
        make_veth();
        let addresses = |count: u32| -> Vec<_> {
            (0..count).map(|number| std::net::Ipv6Addr::from_bits(number.into()).into()).collect()
        };
        let filter = Filter::addresses(&addresses(400), Some(5));
        let socket = open(&Config { filter: Some(&filter), ..config("near") });
        let too_long = Filter::addresses(&addresses(500), None);
        assert!(matches!(socket.set_filter(&too_long), Err(PacketError::FilterSize { .. })));
        let error = refusal(&Config { filter: Some(&too_long), ..config("near") });
        assert!(matches!(error, PacketError::FilterSize { .. }), "{error:?}");
    });
}
