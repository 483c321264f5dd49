//! A tap: an interface whose other end is a file. What is read from it has complete checksums and no
//! super-frames, because the file takes neither.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{eventually, run};

/// A tap. It goes away when this is dropped.
pub struct Tap {
    file: File,
}

/// As [`in_namespace`](super::in_namespace), for a test with a tap: it is skipped without `/dev/net/tun`.
pub fn in_namespace(test: impl FnOnce() + Send) {
    if Path::new("/dev/net/tun").exists() {
        super::in_namespace(test);
    } else {
        eprintln!("skipped: needs /dev/net/tun");
    }
}

// Of linux/if_tun.h.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca_u32 as libc::Ioctl;
const IFF_TAP: libc::c_short = 0x0002;
const IFF_NO_PI: libc::c_short = 0x1000;

impl Tap {
    /// Makes a tap and brings it up.
    pub fn new(interface: &str) -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .expect("/dev/net/tun");
        // SAFETY: numbers, of which all zeros are valid.
        let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *to = libc::c_char::try_from(from).expect("ASCII");
        }
        request.ifr_ifru.ifru_flags = IFF_TAP | IFF_NO_PI;
        // SAFETY: the request lives for the call and is of the type that it takes.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        run("ip", &format!("link set {interface} up"));
        Self { file }
    }

    /// Has `frame` arrive at the interface.
    pub fn inject(&mut self, frame: &[u8]) {
        let written = self.file.write(frame).unwrap_or_else(|error| panic!("{}: {error}", frame.len()));
        assert_eq!(written, frame.len());
    }

    /// Waits for the next frame that leaves the interface.
    pub fn next(&mut self) -> Vec<u8> {
        eventually("a frame from the tap", || self.try_next())
    }

    pub fn try_next(&mut self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 70_000];
        match self.file.read(&mut frame) {
            Ok(octets) => {
                frame.truncate(octets);
                Some(frame)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }
}
