//! Programs that run while a test looks at them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

use super::command;

/// A command that runs, with its outputs here.
pub struct Running {
    /// The process.
    pub child: Child,
    errors: BufReader<ChildStderr>,
}

impl Running {
    /// Starts it without a standard input.
    pub fn start(arguments: &[&str]) -> Self {
        Self::spawn(arguments, Stdio::null())
    }

    /// With a standard input that does not end.
    pub fn start_with_input(arguments: &[&str]) -> Self {
        Self::spawn(arguments, Stdio::piped())
    }

    fn spawn(arguments: &[&str], input: Stdio) -> Self {
        let mut child =
            command(arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        Self { child, errors }
    }

    /// Waits for a line of the error output that has `text`.
    pub fn wait_for_error(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert!(self.errors.read_line(&mut line).unwrap() > 0, "it has ended before it said {text}");
        }
    }

    /// Waits for a line of its output that has `text`.
    pub fn wait_for_output(&mut self, text: &str) {
        assert!(self.prints(text), "it has ended before it printed {text}");
    }

    /// Waits for a line of its output that has `text`. Returns false if it ends before.
    pub fn prints(&mut self, text: &str) -> bool {
        // Without a buffer: what comes later is for `end`.
        let (mut line, mut octet) = (Vec::new(), [0]);
        let output = self.child.stdout.as_mut().unwrap();
        while !String::from_utf8_lossy(&line).contains(text) {
            if octet[0] == b'\n' {
                line.clear();
            }
            if output.read(&mut octet).unwrap() == 0 {
                return false;
            }
            line.push(octet[0]);
        }
        true
    }

    /// Sends it a signal, such as `-INT`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end. Returns how it ended, the rest of its output and of its errors.
    pub fn end(&mut self) -> (ExitStatus, String, String) {
        let (mut output, mut errors) = (String::new(), String::new());
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut output).unwrap();
        }
        self.errors.read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap(), output, errors)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, unless the test has failed or has stopped it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
