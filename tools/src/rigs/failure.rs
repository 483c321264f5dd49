//! Failures, described for people and for programs.

use std::fmt;

use warpline::{
    AcceptError, AnswerError, CloseError, CloseReason, ConnectError, StartupFault, Status, StreamError,
    SwitchError, TcpStreamError,
};
use warpline_tools::error::CommandError;

/// What went wrong.
#[derive(Debug)]
pub struct Failure {
    /// In words.
    pub text: String,
    /// As a code, if it went wrong on the connection: the layer and its numbers.
    pub code: Option<String>,
}

impl Failure {
    /// Returns the failure for an error at this end that the connection did not cause.
    pub fn local(text: impl fmt::Display) -> Self {
        Self { text: text.to_string(), code: None }
    }

    /// Returns the failure for an error on the connection.
    pub fn of(text: impl fmt::Display, code: impl Into<String>) -> Self {
        Self { text: text.to_string(), code: Some(code.into()) }
    }

    /// Returns the failure for a peer that closed its half too early, in an orderly way.
    pub fn early_close() -> Self {
        Self::of("the peer closed before the exchange was over", tcp(CloseReason::Finished))
    }

    /// Returns the failure for a peer that broke the exchange's own rules.
    pub fn rule(text: impl fmt::Display) -> Self {
        Self::of(text, "exchange")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.code {
            Some(code) => write!(f, "{} ({code})", self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.to_string())
    }
}

fn tcp(reason: CloseReason) -> String {
    let reason = match reason {
        CloseReason::Finished => "closed",
        CloseReason::Refused => "refused",
        CloseReason::Reset => "reset",
        CloseReason::TimedOut => "timeout",
        CloseReason::Aborted => "aborted",
        _ => "other",
    };
    format!("tcp:{reason}")
}

fn startup(fault: StartupFault) -> String {
    format!("startup:{}", fault.detail())
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        let code = match error {
            StreamError::Tcp(reason) => tcp(reason),
            StreamError::NoFpdu => "mpa:no-fpdu".into(),
            StreamError::CompletionQueueOverflow => "local:completion-queue".into(),
            StreamError::Mpa(error) => format!("mpa:{}", error.code()),
            StreamError::Ddp(error) => format!("ddp:{}:{}", error.error_type(), error.code()),
            StreamError::Rdmap(error) => format!("rdmap:{}:{}", error.error_type(), error.code()),
            StreamError::Terminated { layer, error_type, code } => {
                format!("terminated:{layer}:{error_type}:{code}")
            }
            _ => "stream:other".into(),
        };
        Self::of(error, code)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        match status {
            Status::Failed(error) => error.into(),
            // The connection is over, and not because it failed.
            Status::Flushed => Self::early_close(),
            status => Self::local(format!("a work request ended with {status:?}")),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let code = match &error {
            ConnectError::Refused => tcp(CloseReason::Refused),
            ConnectError::TimedOut => tcp(CloseReason::TimedOut),
            ConnectError::Closed(reason) => tcp(*reason),
            ConnectError::Rejected { .. } => "startup:rejected".into(),
            ConnectError::Startup(fault) => startup(*fault),
            ConnectError::Unmet { error, .. } => format!("mpa:{}", error.code()),
            _ => return Self::local(error),
        };
        Self::of(error, code)
    }
}

impl From<TcpStreamError> for Failure {
    fn from(error: TcpStreamError) -> Self {
        match error {
            TcpStreamError::TimedOut => Self::of(error, tcp(CloseReason::TimedOut)),
            TcpStreamError::Closed(reason) => Self::of(error, tcp(reason)),
            _ => Self::local(error),
        }
    }
}

impl From<SwitchError> for Failure {
    fn from(error: SwitchError) -> Self {
        match error {
            SwitchError::Startup(fault) => Self::of(error, startup(fault)),
            SwitchError::Closed(reason) => Self::of(error, tcp(reason)),
            _ => Self::local(error),
        }
    }
}

impl From<AcceptError> for Failure {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::Startup { fault, .. } => Self::of(error, startup(fault)),
            AcceptError::TimedOut => Self::of(error, tcp(CloseReason::TimedOut)),
            _ => Self::local(error),
        }
    }
}

impl From<AnswerError> for Failure {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Startup(fault) => Self::of(error, startup(fault)),
            AnswerError::Closed(reason) => Self::of(error, tcp(reason)),
            _ => Self::local(error),
        }
    }
}

impl From<CloseError> for Failure {
    fn from(error: CloseError) -> Self {
        match error {
            CloseError::Failed(error) => error.into(),
            CloseError::NotYet => Self::of(error, tcp(CloseReason::TimedOut)),
            _ => Self::local(error),
        }
    }
}
