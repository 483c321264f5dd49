//! Options for the setup of connections (RFC 6581, and RFC 5044 appendix C).

use clap::{Args, ValueEnum};
use warpline::{ConnectConfig, ListenConfig, ReadDepths, Revision, RtrKinds, Terms};

/// The most RDMA Reads that may be outstanding in one direction.
const DEPTH_MAX: i64 = 128;
/// The same without --ird or --ord.
const DEPTH: u16 = 32;

/// How connections are set up.
#[derive(Args, Clone, Debug)]
pub struct Setup {
    /// The revision of MPA in this end's Request when it connects.
    #[arg(long, value_enum)]
    pub revision: Option<RevisionChoice>,
    /// The most inbound RDMA Reads at a time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=DEPTH_MAX),
          default_value_t = DEPTH)]
    pub ird: u16,
    /// The most outbound RDMA Reads at a time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=DEPTH_MAX),
          default_value_t = DEPTH)]
    pub ord: u16,
    /// Leave both to the applications: frames of revision 2 then have 0x3FFF for them.
    #[arg(long)]
    pub unnegotiated: bool,
    /// The ready-to-receive indications that this end can send when it connects, for a peer that may send
    /// first (none without this), and that it accepts when it listens (all without this).
    #[arg(long, value_name = "KINDS", value_enum, value_delimiter = ',')]
    pub rtr: Vec<Indication>,
    /// Accept peers of the RDMA Consortium: revision 0, and version 0 of DDP and RDMAP.
    #[arg(long)]
    pub permissive: bool,
}

/// A revision of MPA.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub enum RevisionChoice {
    /// That of the RDMA Consortium's endpoints.
    #[value(name = "0")]
    Zero,
    /// RFC 5044.
    #[value(name = "1")]
    One,
    /// RFC 6581.
    #[value(name = "2")]
    Two,
    /// 2, or 1 with a peer that does not support it.
    Auto,
}

/// A ready-to-receive indication.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub enum Indication {
    /// An RDMA Write without payload.
    Write,
    /// A Send without payload.
    Send,
    /// An RDMA Read for nothing.
    Read,
    /// None at all.
    None,
}

impl Setup {
    /// Sets `config` up; `usual` is the revision unless one was given.
    pub fn connect(&self, usual: Revision, config: ConnectConfig) -> ConnectConfig {
        let revision = self.revision.map_or(usual, |choice| match choice {
            RevisionChoice::Zero => Revision::Zero,
            RevisionChoice::One => Revision::One,
            RevisionChoice::Two => Revision::Two,
            RevisionChoice::Auto => Revision::TwoThenOne,
        });
        ConnectConfig {
            revision,
            terms: self.terms(RtrKinds::empty()),
            permissive: self.permissive,
            ..config
        }
    }

    /// Sets `config` up.
    pub fn listen(&self, config: ListenConfig) -> ListenConfig {
        ListenConfig { terms: self.terms(RtrKinds::all()), permissive: self.permissive, ..config }
    }

    fn terms(&self, usual: RtrKinds) -> Terms {
        let given = self.rtr.iter().map(|kind| match kind {
            Indication::Write => RtrKinds::WRITE,
            Indication::Send => RtrKinds::SEND,
            Indication::Read => RtrKinds::READ,
            Indication::None => RtrKinds::empty(),
        });
        let rtr = if self.rtr.is_empty() { usual } else { given.collect() };
        Terms { depths: self.depths(), negotiated: !self.unnegotiated, rtr }
    }

    /// Returns the RDMA Reads of either end that may be outstanding.
    pub const fn depths(&self) -> ReadDepths {
        ReadDepths { ird: self.ird, ord: self.ord }
    }
}
