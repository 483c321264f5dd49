//! Finds libdpdk, compiles the shim over its inline functions and generates the bindings.
//!
//! Where docs.rs makes documentation (`DOCS_RS` is set) there is no DPDK, and nothing is linked: the bindings
//! of DPDK 22.11 in `src/documentation.rs` stand for those that a build generates.

use std::env;
use std::fs;
use std::panic;
use std::path::PathBuf;
use std::process::Command;

/// The oldest release whose structures and names this crate was written against.
const OLDEST_DPDK: &str = "22.11";

/// Bindings for documentation, which a test keeps up to date.
const KEPT_BINDINGS: &str = "src/documentation.rs";

const PACKAGES: &str = "apt-get install gcc libc6-dev pkg-config libdpdk-dev libclang1-14 \
    libclang-common-14-dev (Debian 12 names)";

/// The functions and variables that are used. Thread-local variables (`per_lcore__*`) must never be bound:
/// bindgen would make plain statics of them. Hence no pattern matches more than one subsystem's names.
const FUNCTIONS: &str = "inlined_.*|rte_eal_(init|iova_mode|get_runtime_dir|hotplug_remove|alarm_set)\
    |rte_strerror|rte_dev_(name|probe)|rte_openlog_stream\
    |rte_thread_(register|unregister)\
    |rte_pktmbuf_pool_create|rte_mempool_(free|avail_count|walk)\
    |rte_(zmalloc_socket|malloc_get_socket_stats|free|mem_virt2memseg|pktmbuf_copy)\
    |rte_eth_dev_(configure|info_get|start|stop|close|adjust_nb_rx_tx_desc|get_port_by_name|get_name_by_port\
    |rss_(reta_(update|query)|hash_(update|conf_get))|socket_id|rx_intr_(enable|disable|ctl_q_get_fd))\
    |rte_eth_(find_next|rx_queue_setup|tx_queue_setup|promiscuous_enable|allmulticast_enable\
    |macaddr_get|stats_get|link_get_nowait)";
const TYPES: &str = "rte_eth_(conf|dev_info|rxconf|txconf|stats|link|rss_reta_entry64)|rte_ether_addr\
    |rte_mbuf|rte_mbuf_ext_shared_info|rte_memseg|rte_malloc_socket_stats|rte_iova_mode";
const CONSTANTS: &str = "constant_.*|RTE_MAX_ETHPORTS|RTE_ETH_NAME_MAX_LEN|RTE_ETH_RETA_GROUP_SIZE\
    |RTE_PKTMBUF_HEADROOM|RTE_ETHER_HDR_LEN|RTE_MEMPOOL_CACHE_MAX_SIZE|SOCKET_ID_ANY";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/inlined.c");
    println!("cargo::rerun-if-changed=src/inlined.h");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    let made = if env::var_os("DOCS_RS").is_some() { take_kept_bindings() } else { build() };
    if let Err(reason) = made {
        println!("cargo::error={reason}");
    }
}

/// Takes the bindings that are kept for documentation.
fn take_kept_bindings() -> Result<(), String> {
    println!("cargo::rerun-if-changed={KEPT_BINDINGS}");
    fs::copy(KEPT_BINDINGS, bindings()?)
        .map_err(|error| format!("the bindings cannot be copied from {KEPT_BINDINGS}: {error}"))?;
    Ok(())
}

/// Returns where the crate looks for its bindings.
fn bindings() -> Result<PathBuf, String> {
    Ok(PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?).join("bindings.rs"))
}

fn build() -> Result<(), String> {
    let library = pkg_config::Config::new()
        .atleast_version(OLDEST_DPDK)
        .cargo_metadata(false)
        .probe("libdpdk")
        .map_err(|_| format!("libdpdk {OLDEST_DPDK} or later was not found; install it: {PACKAGES}"))?;
    let flags = compiler_flags()?;

    let mut shim = cc::Build::new();
    shim.file("src/inlined.c").opt_level(3).flag("-Wno-deprecated-declarations");
    for flag in &flags {
        shim.flag(flag);
    }
    shim.try_compile("dpdk_inlined").map_err(|error| {
        format!("the shim over DPDK's inline functions does not compile: {error}; needed: {PACKAGES}")
    })?;

    // Only what is called: bus and device drivers are plug-ins that EAL opens from its driver directory.
    for path in &library.link_paths {
        println!("cargo::rustc-link-search=native={}", path.display());
    }
    for name in ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_eal"] {
        println!("cargo::rustc-link-lib=dylib={name}");
    }

    // bindgen panics when libclang is missing; the backtrace would bury what to do.
    panic::set_hook(Box::new(|_| {}));
    let libclang = panic::catch_unwind(bindgen::clang_version);
    drop(panic::take_hook());
    if libclang.is_err() {
        return Err(format!("libclang was not found; install it: {PACKAGES}"));
    }
    bindgen::Builder::default()
        .header("src/inlined.h")
        .clang_args(&flags)
        .allowlist_function(FUNCTIONS)
        .allowlist_type(TYPES)
        .allowlist_var(CONSTANTS)
        // Reached through functions alone.
        .opaque_type("rte_mempool|rte_device")
        .default_enum_style(bindgen::EnumVariation::ModuleConsts)
        .prepend_enum_name(false)
        .derive_debug(false)
        .derive_default(false)
        .generate_comments(false)
        .use_core()
        .generate()
        .map_err(|error| one_line(&format!("bindgen: {error}; needed: {PACKAGES}")))?
        .write_to_file(bindings()?)
        .map_err(|error| format!("the bindings cannot be written: {error}"))
}

/// Returns the flags that libdpdk requires, verbatim: `-include rte_config.h` and `-march` decide the layout
/// of its structures, and the `pkg-config` crate passes on neither.
fn compiler_flags() -> Result<Vec<String>, String> {
    println!("cargo::rerun-if-env-changed=PKG_CONFIG");
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let output = Command::new(program)
        .args(["--cflags", "libdpdk"])
        .output()
        .map_err(|error| format!("pkg-config does not run: {error}; needed: {PACKAGES}"))?;
    let flags = String::from_utf8(output.stdout).map_err(|_| "pkg-config's answer is not UTF-8")?;
    Ok(flags.split_whitespace().map(str::to_owned).collect())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
