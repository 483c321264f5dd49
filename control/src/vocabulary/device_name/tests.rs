//! Tests of device names: valid names, refused names and their messages, and names read back from their text.

use proptest::prelude::*;
use warpline_dataplane::limits::CORES_MAX;

use super::kind::SOCKET_PATH_MAX;
use super::*;
use crate::vocabulary::capacity::Capacity;
use crate::vocabulary::quota::Quotas;

fn name(text: &str) -> DeviceName {
    text.parse().unwrap_or_else(|error: DeviceNameError| panic!("{error}"))
}

fn fault(text: &str) -> String {
    text.parse::<DeviceName>().unwrap_err().to_string()
}

#[test]
fn every_kind_has_a_name() {
    for (text, kind, target) in [
        ("ring", DeviceKind::Ring, ""),
        ("packet:eth1", DeviceKind::Packet, "eth1"),
        ("tap:tap0", DeviceKind::Tap, "tap0"),
        ("af_packet:eth1", DeviceKind::AfPacket, "eth1"),
        ("af_xdp:eth1.7", DeviceKind::AfXdp, "eth1.7"),
        ("memif:/run/x.sock", DeviceKind::Memif, "/run/x.sock"),
        ("vhost:relative/x.sock", DeviceKind::Vhost, "relative/x.sock"),
        ("virtio_user:/run/x:y.sock", DeviceKind::VirtioUser, "/run/x:y.sock"),
        ("pci:0000:01:00.0", DeviceKind::Pci, "0000:01:00.0"),
        ("pci:0A:1f.7", DeviceKind::Pci, "0000:0a:1f.7"),
        ("eal:net_null0", DeviceKind::Eal, "net_null0"),
        ("eal:0000:01:00.0", DeviceKind::Eal, "0000:01:00.0"),
    ] {
        let name = name(text);
        assert_eq!((name.kind(), name.target()), (kind, target), "{text}");
    }
    assert!(DeviceKind::ALL.iter().all(|kind| kind.form().starts_with(kind.word())));
}

#[test]
fn options_follow_after_commas() {
    let text = "af_packet:eth1,mtu=9000,framesz=9216,address=198.18.0.1,address=fd00::1/48,vlan=7,\
                gateway=198.18.0.254,route=10.0.0.0/8@198.18.0.253";
    let name = name(text);
    assert_eq!(name.mtu(), 9000);
    assert_eq!(name.driver_options(), [("framesz".into(), "9216".into())]);
    let config = name.config();
    let written = |list: &[Cidr]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(written(&config.addresses), ["198.18.0.1/24", "fd00::1/48"]);
    assert_eq!(config.vlan, Some(7));
    let gateway = Route::default_by([198, 18, 0, 254].into());
    let route = Route { destination: "10.0.0.0/8".parse().unwrap(), gateway: [198, 18, 0, 253].into() };
    assert_eq!(config.routes, [gateway, route]);
}

/// A name that says how many connections there may be has the quotas of such a device: half of them may be of
/// one peer.
#[test]
fn the_number_of_connections_is_the_capacity() {
    let config = name("ring,connections=100000").config();
    let Capacity { connections, queue_pairs, registrations, time_waits, .. } = config.capacity;
    assert_eq!((connections, queue_pairs, registrations), (100_000, 100_000, 32_768));
    assert_eq!(time_waits, 1_600_000);
    let Quotas { queue_pairs_per_domain, connections_per_peer, connections_per_network, .. } = config.quotas;
    assert_eq!(
        (queue_pairs_per_domain, connections_per_peer, connections_per_network),
        (50_000, 50_000, 75_000)
    );
    let usual = name("ring").config();
    assert_eq!((usual.capacity, usual.quotas), (Capacity::default(), Quotas::default()));
}

#[test]
fn the_cores_are_listed_by_their_cpus() {
    assert_eq!(name("ring,cores=2-4+0").cores(), Some(&CpuList::Cpus(vec![2, 3, 4, 0])));
    assert_eq!(name("af_packet:e,cores=node1,mtu=9000").cores(), Some(&CpuList::Node(1)));
    assert_eq!(name("pci:01:00.0,cores=2-3,x=1").to_string(), "pci:0000:01:00.0,cores=2-3,x=1");
    assert_eq!(name("ring").cores(), None);
}

#[test]
fn what_is_not_said_has_a_default() {
    let name = name("ring");
    assert_eq!((name.mtu(), name.addresses(), name.routes()), (1500, &[][..], &[][..]));
    assert_eq!(name.config().vlan, None);
}

/// A packet socket without an address has those of the kernel, unless it says that they are its own.
#[test]
fn addresses_are_the_devices_own_or_shared() {
    for (text, presence, lacks) in [
        ("packet:e", Presence::Own, true),
        ("packet:e,presence=shared", Presence::Shared, true),
        ("packet:e,presence=own", Presence::Own, false),
        ("packet:e,address=198.18.0.1", Presence::Own, false),
        ("packet:e,address=198.18.0.1,presence=shared", Presence::Shared, false),
        ("af_packet:e", Presence::Own, false),
    ] {
        let name = name(text);
        assert_eq!((name.presence(), name.lacks_addresses()), (presence, lacks), "{text}");
    }
    let addresses = vec!["198.18.0.1/24".parse().unwrap()];
    let routes = vec![Route::default_by([198, 18, 0, 254].into())];
    let shared = name("packet:e,vlan=7").sharing(addresses, routes, 9000);
    let text = "packet:e,address=198.18.0.1/24,gateway=198.18.0.254,mtu=9000,vlan=7,presence=shared";
    assert_eq!(shared.to_string(), text);
    assert_eq!(shared, name(text), "as if it had been written so");
    assert_eq!(shared.config().presence, Presence::Shared);
    assert_eq!(name("packet:e,mtu=1400").sharing(Vec::new(), Vec::new(), 9000).mtu(), 1400);
}

/// A packet socket carries super-frames unless its name says otherwise, any other device if it says so.
#[test]
fn super_frames_are_said_or_usual() {
    for (text, expected) in [
        ("packet:e", true),
        ("packet:e,super_frames=on", true),
        ("packet:e,super_frames=off", false),
        ("af_packet:e", false),
        ("af_packet:e,super_frames=on", true),
        ("ring,super_frames=off", false),
    ] {
        assert_eq!(name(text).has_super_frames(), expected, "{text}");
    }
}

/// Each message describes the error and lists the alternatives.
#[test]
fn a_wrong_name_is_refused_with_what_exists() {
    for (text, expected) in [
        ("", "the kinds are ring, packet:INTERFACE"),
        (
            "afpacket:eth1",
            "there is no kind 'afpacket'; the kinds are ring, packet:INTERFACE, tap:INTERFACE, \
             af_packet:INTERFACE",
        ),
        ("Ring", "and eal:PORT"),
        ("ring:x", "a ring has nothing to open"),
        ("tap", "write tap:INTERFACE"),
        ("tap:", "write tap:INTERFACE"),
        ("tap:sixteen-letters-", "1 to 15 bytes"),
        ("tap:a/b", "the name of a network interface"),
        ("memif:", "write memif:PATH"),
        ("pci:eth0", "as in pci:0000:01:00.0"),
        ("pci:01:20.0", "the address of a PCI device"),
        ("pci:01:00.8", "the address of a PCI device"),
        ("eal:", "write eal:PORT"),
        ("ring,", "'' is not an option; write OPTION=VALUE"),
        ("ring,mtu", "'mtu' is not an option; write OPTION=VALUE"),
        ("ring,=1", "'=1' is not an option"),
        (
            "tap:t,framesz=1",
            "tap has no option 'framesz'; its options are address, gateway, route, mtu, vlan, connections, \
             cores, mac and queues",
        ),
        (
            "ring,mac=02:00:00:00:00:01",
            "its options are address, gateway, route, mtu, vlan, connections, cores and super_frames",
        ),
        ("ring,super_frames=yes", "it is on or off"),
        ("ring,mtu=575", "'575' is no value of the option 'mtu': it is 576 to 9600 bytes"),
        ("ring,mtu=9601", "576 to 9600"),
        ("ring,mtu=1500,mtu=1500", "the option 'mtu' is given twice"),
        ("tap:t,mac=fixed,mac=fixed", "the option 'mac' is given twice"),
        ("ring,vlan=4095", "1 to 4094"),
        ("ring,connections=0", "'0' is no value of the option 'connections': it is 1 to 16777216"),
        ("ring,connections=16777217", "1 to 16777216"),
        ("ring,connections=5,connections=5", "the option 'connections' is given twice"),
        ("ring,cores=many", "list CPUs, as in 2-5 or 2+4+7, or name all of a NUMA node, as in node0"),
        ("ring,cores=1+1", "'1+1' is no value of the option 'cores': each CPU has one core: name it once"),
        ("ring,cores=0-64", "a device has at most 64 cores"),
        ("ring,cores=5-2", "the lower CPU of a range comes first"),
        ("ring,cores=1024", "is 0 to 1023"),
        ("ring,cores=1,cores=2", "the option 'cores' is given twice"),
        ("ring,address=198.18.0.1/33", "198.18.0.1/24 or fd00::1/64"),
        ("ring,gateway=198.18.0.0/24", "write an address"),
        ("ring,gateway=198.18.0.3,gateway=198.18.0.4", "'gateway' is given twice"),
        ("ring,route=0.0.0.0/0@198.18.0.3,gateway=198.18.0.4", "'gateway' is given twice"),
        ("ring,gateway=198.18.0.3,route=0.0.0.0/0@198.18.0.4", "'route' is given twice"),
        ("vhost:/s,client=+1", "it is a number"),
        ("ring,route=10.0.0.0/8", "NETWORK/PREFIX@GATEWAY"),
        ("memif:/x,role=master", "it is server or client"),
        ("vhost:/x,queues=2", "'2' is no value of the option 'queues': it is one or each"),
        ("packet:e,framecnt=64", "cores, presence, super_frames and queues"),
        ("packet:e,presence=both", "it is own or shared"),
        ("memif:/x,queues=each", "memif has no option 'queues'"),
        ("pci:01:00.0,queues=4", "'4' is no value of the option 'queues': it is one or each"),
        ("af_packet:e,framesz=many", "'many' is no value of the option 'framesz': it is a number"),
    ] {
        let fault = fault(text);
        assert!(fault.starts_with(&format!("device '{text}': ")) && fault.contains(expected), "{fault}");
    }
}

#[test]
fn an_option_can_be_added() {
    let name = name("tap:t,mtu=1400");
    assert_eq!(name.with_option("vlan", 7).unwrap().to_string(), "tap:t,mtu=1400,vlan=7");
    assert!(name.with_option("mtu", 1500).unwrap_err().to_string().contains("given twice"));
    assert!(name.with_option("nothing", 1).is_err());
}

#[test]
fn a_path_fits_the_address_of_a_socket() {
    let longest = "x".repeat(SOCKET_PATH_MAX);
    assert_eq!(name(&format!("memif:{longest}")).target(), longest);
    assert!(fault(&format!("memif:{longest}x")).contains("1 to 107 bytes"));
}

#[test]
fn an_address_without_prefix_has_the_usual_network() {
    assert_eq!(parse_interface_address("198.18.0.2").unwrap().to_string(), "198.18.0.2/24");
    assert_eq!(parse_interface_address("fd00::2").unwrap().to_string(), "fd00::2/64");
    assert_eq!(parse_interface_address("198.18.0.2/15").unwrap().to_string(), "198.18.0.2/15");
    for wrong in ["198.18.0/24", "198.18.0.2/33", "host/24", ""] {
        assert!(parse_interface_address(wrong).is_err(), "{wrong}");
    }
}

/// The option with the CPUs of a device, or none.
fn cores() -> impl Strategy<Value = Option<String>> {
    let cpus = proptest::collection::hash_set(0..1024_usize, 1..CORES_MAX);
    let list = cpus.prop_map(|cpus| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join("+"));
    let range = (0..960_usize, 0..CORES_MAX).prop_map(|(first, more)| format!("{first}-{}", first + more));
    let node = (0..1024_usize).prop_map(|node| format!("node{node}"));
    proptest::option::of(prop_oneof![list, range, node].prop_map(|list| format!("cores={list}")))
}

/// A text that names a device, by its parts.
fn names() -> impl Strategy<Value = String> {
    let devices = prop_oneof![
        Just("ring".to_owned()),
        "(tap|af_packet|af_xdp):[!-+\\--.0-9;-~]{1,15}",
        "(memif|vhost|virtio_user):[ -+\\--~]{1,107}",
        "pci:([0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F]\\.[0-7]",
        "eal:[!-+\\--~]{1,40}",
    ];
    let address =
        prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from),];
    let option =
        (address.clone(), address, 1..=32_u8, 0..3).prop_map(|(one, other, bits, which)| match which {
            0 => format!("address={one}"),
            1 => format!("address={one}/{bits}"),
            _ => format!("route={one}/{bits}@{other}"),
        });
    // What a name has once. A gateway may be written as a route.
    let gateways =
        [any::<[u8; 4]>().prop_map(IpAddr::from).boxed(), any::<[u8; 16]>().prop_map(IpAddr::from).boxed()];
    let gateways = gateways.map(|gateway| proptest::option::of((gateway, any::<bool>())));
    let single = (gateways, proptest::option::of(MTU), proptest::option::of(1..4095_u16), cores()).prop_map(
        |(gateways, mtu, vlan, cores)| {
            let gateway = |(gateway, as_route)| {
                if as_route { format!("route={gateway}/0@{gateway}") } else { format!("gateway={gateway}") }
            };
            let gateways = gateways.into_iter().flatten().map(gateway);
            let mtu = mtu.map(|mtu| format!("mtu={mtu}"));
            gateways
                .chain(mtu)
                .chain(vlan.map(|vlan| format!("vlan={vlan}")))
                .chain(cores)
                .collect::<Vec<_>>()
        },
    );
    (devices, proptest::collection::vec(option, 0..6), single)
        .prop_map(|(device, options, single)| [vec![device], options, single].concat().join(","))
}

#[cfg(feature = "dpdk")]
#[test]
fn a_device_in_dpdks_notation_has_a_name_of_its_own_kind() {
    let in_own_kind = |text: &str, otherwise| {
        text.parse::<DeviceName>().unwrap().in_own_kind(otherwise).map(|name| name.to_string())
    };
    for (eal, own) in [
        ("eal:net_af_packet0,iface=e1", Some("af_packet:e1")),
        (
            "eal:net_af_packet0,framesz=4096,iface=e1,mtu=3000,super_frames=on,address=198.18.0.1",
            Some("af_packet:e1,address=198.18.0.1/24,mtu=3000,framesz=4096"),
        ),
        ("eal:net_af_xdp_x,iface=e1", Some("af_xdp:e1")),
        ("eal:net_tap3,iface=t0", Some("tap:t0")),
        ("eal:net_tap3", None),
        ("eal:net_tap3,iface=of_sixteen_bytes", None),
        // The path of a socket.
        ("eal:net_vhost0,iface=/run/x.sock", None),
        ("eal:net_null0,size=64", None),
        ("af_packet:e1", None),
    ] {
        assert_eq!(in_own_kind(eal, None).as_deref(), own, "{eal}");
    }
    // The port knows its interface.
    assert_eq!(in_own_kind("eal:net_tap3", Some("t1")).as_deref(), Some("tap:t1"));
    assert_eq!(in_own_kind("eal:net_tap3,iface=t0", Some("t1")).as_deref(), Some("tap:t0"));
    assert_eq!(in_own_kind("pci:01:00.0", Some("t1")), None);
}

proptest! {
    /// A name survives the round trip through its text: written and parsed again, it is equal.
    #[test]
    fn a_name_reads_as_it_is_written(text in names()) {
        let name = text.parse::<DeviceName>();
        prop_assert!(name.is_ok(), "{text}: {name:?}");
        let name = name.unwrap();
        prop_assert_eq!(name.to_string().parse(), Ok(name));
    }

    /// Any text is a name or is refused in words that repeat it.
    #[test]
    fn any_text_is_taken_or_refused(text in "[a-z_]{0,11}:?[ -~]{0,40}|\\PC{0,40}") {
        match text.parse::<DeviceName>() {
            Ok(name) => prop_assert_eq!(name.to_string().parse(), Ok(name)),
            Err(error) => prop_assert!(error.to_string().contains(&text)),
        }
    }
}
