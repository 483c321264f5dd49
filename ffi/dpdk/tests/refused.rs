//! Test of an EAL that does not start. A process has one attempt, so this is a test process of its own.
#![allow(missing_docs)]

use dpdk::{Eal, EalError, Memory};

#[test]
fn a_failed_start_tells_why_and_is_final() {
    // More pages than an address space holds.
    let error = Eal::builder().memory(Memory::Hugepages).memory_mib(1 << 40).init().unwrap_err();
    assert!(matches!(error, EalError::NoHugepages { .. }), "{error}");
    let builder = Eal::builder().memory_mib(16);
    let error = builder.clone().argument("with\0nul").init().unwrap_err();
    assert!(matches!(error, EalError::Argument(_)), "{error}");

    let error = builder.clone().vdev("net_nonesuch0").init().unwrap_err();
    assert!(matches!(error, EalError::Init { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("--vdev=net_nonesuch0"), "{text}");
    // What DPDK logged is in the error.
    assert!(text.contains("DPDK says: EAL: failed to parse device \"net_nonesuch0\""), "{text}");
    let error = builder.init().unwrap_err();
    assert!(matches!(error, EalError::EarlierAttemptFailed), "{error}");
    assert_eq!(Eal::current(), None);
}
