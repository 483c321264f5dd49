//! Test of what a program finds on its standard error, and on its standard output, while DPDK prints there
//! too. It puts a pipe in their place, so this is a test process of its own.
#![allow(missing_docs)]
#![allow(unsafe_code, reason = "prints as a part of the program in C does")]

use std::fs::File;
use std::io::{PipeWriter, Read, Write, pipe};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dpdk::Eal;

unsafe extern "C" {
    static mut stderr: *mut libc::FILE;
}

/// Puts `pipe` in the place of standard output and standard error, and returns both.
fn replace(pipe: &PipeWriter) -> (File, File) {
    let before =
        [std::io::stdout().as_fd().try_clone_to_owned(), std::io::stderr().as_fd().try_clone_to_owned()];
    rustix::stdio::dup2_stdout(pipe).unwrap();
    rustix::stdio::dup2_stderr(pipe).unwrap();
    let [output, error] = before.map(|stream| File::from(stream.unwrap()));
    (output, error)
}

/// EAL prints its usage to standard output, and two lines to standard error.
#[test]
fn lines_of_dpdk_go_into_the_error_and_others_where_they_were_meant_to() {
    let error = Eal::builder().argument("--help").init().unwrap_err();
    let expected = "the EAL argument --help prints DPDK's usage and ends the process: ask a program of \
                    DPDK's instead, as in dpdk-testpmd --help";
    assert_eq!(error.to_string(), expected);

    let (mut printed, pipe) = pipe().unwrap();
    let (output, error_output) = replace(&pipe);
    let (done, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let (error, lines) = thread::scope(|scope| {
        let printer = scope.spawn(|| {
            let mut lines = 0;
            // Few enough for the pipe, and as long as DPDK may print.
            while lines < 1000 || !done.load(Ordering::Acquire) && lines < 3000 {
                // SAFETY: a stream that is open, and a string.
                unsafe { libc::fputs(c"of C\n".as_ptr(), stderr) };
                writeln!(std::io::stderr(), "of Rust").unwrap();
                lines += 1;
                ready.store(true, Ordering::Release);
            }
            lines
        });
        while !ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let error = Eal::builder().memory_mib(16).argument("--nonsense").init().unwrap_err();
        done.store(true, Ordering::Release);
        (error.to_string(), printer.join().unwrap())
    });
    rustix::stdio::dup2_stdout(output).unwrap();
    rustix::stdio::dup2_stderr(error_output).unwrap();
    drop(pipe);
    let mut text = String::new();
    printed.read_to_string(&mut text).unwrap();
    let count = |wanted: &str| text.lines().filter(|line| *line == wanted).count();
    let foreign: Vec<&str> = text.lines().filter(|line| !["of C", "of Rust"].contains(line)).collect();
    assert_eq!(foreign, Vec::<&str>::new());
    assert_eq!((count("of C"), count("of Rust")), (lines, lines));
    let says =
        "; DPDK says: EAL: Invalid 'command line' arguments.; warpline: unrecognized option '--nonsense'";
    assert!(error.ends_with(says), "{error}");
}
