//! rping's exchange, without anything that carries it. A ping is:
//!
//! 1. The client advertises its source: a Send of 16 bytes (`Advertisement`).
//! 2. The server reads it by an RDMA Read, then sends the client the go-ahead: a Send of 16 bytes that mean
//!    nothing.
//! 3. The client advertises its sink.
//! 4. The server writes what it read to the sink by an RDMA Write, then says so: a Send of 16 bytes that mean
//!    nothing.

use warpline::Advertisement;

/// The client's part: which message it sent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClientState {
    /// No ping is under way.
    #[default]
    Idle,
    /// The source is advertised.
    SourceAdvertised,
    /// The sink is advertised.
    SinkAdvertised,
}

/// The client's action on a message of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAction {
    /// It advertises its sink.
    AdvertiseSink,
    /// The ping is over, and the sink can be looked at.
    Finish,
}

/// A message or an event that does not fit the state of the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}, which rping's exchange does not allow now")]
pub struct OutOfPlace {
    what: &'static str,
}

impl ClientState {
    /// Begins a ping. The caller advertises the source.
    ///
    /// # Errors
    ///
    /// [`OutOfPlace`] when one is under way.
    pub fn begin(&mut self) -> Result<(), OutOfPlace> {
        if *self != Self::Idle {
            return Err(OutOfPlace { what: "another ping" });
        }
        *self = Self::SourceAdvertised;
        Ok(())
    }

    /// Takes a message of the server.
    ///
    /// # Errors
    ///
    /// [`OutOfPlace`].
    pub fn on_message(&mut self) -> Result<ClientAction, OutOfPlace> {
        let (state, action) = match *self {
            Self::Idle => return Err(OutOfPlace { what: "a message between two pings" }),
            Self::SourceAdvertised => (Self::SinkAdvertised, ClientAction::AdvertiseSink),
            Self::SinkAdvertised => (Self::Idle, ClientAction::Finish),
        };
        *self = state;
        Ok(action)
    }
}

/// The event that the server waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum ServerState {
    /// The client's source.
    #[default]
    Source,
    /// The end of our Read of so many octets.
    Read { octets: u32 },
    /// The client's sink, for so many octets.
    Sink { octets: u32 },
}

/// The server's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerAction {
    /// It reads all of the client's source.
    Read(Advertisement),
    /// It sends the client the go-ahead.
    GoAhead,
    /// It writes this number of bytes to the client's sink and says so: the message arrives after the bytes.
    WriteAndTell(Advertisement, u32),
}

/// The server's part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Server {
    state: ServerState,
    /// The Write of the ping before is not complete: its octets are in the buffer that the next Read fills.
    writing: bool,
    /// A source that waits for that.
    waiting: Option<Advertisement>,
}

impl Server {
    /// Takes an advertisement of the client.
    ///
    /// # Errors
    ///
    /// [`OutOfPlace`].
    pub fn on_advertisement(
        &mut self,
        advertisement: Advertisement,
    ) -> Result<Option<ServerAction>, OutOfPlace> {
        match self.state {
            ServerState::Source if self.writing && self.waiting.is_none() => {
                self.waiting = Some(advertisement);
                Ok(None)
            }
            ServerState::Source if !self.writing => Ok(Some(self.read(advertisement))),
            ServerState::Sink { octets } => {
                (self.state, self.writing) = (ServerState::Source, true);
                let octets = octets.min(advertisement.len);
                Ok(Some(ServerAction::WriteAndTell(advertisement, octets)))
            }
            ServerState::Source | ServerState::Read { .. } => {
                Err(OutOfPlace { what: "a second advertisement" })
            }
        }
    }

    const fn read(&mut self, source: Advertisement) -> ServerAction {
        self.state = ServerState::Read { octets: source.len };
        ServerAction::Read(source)
    }

    /// Handles the completion of the Read.
    ///
    /// # Errors
    ///
    /// [`OutOfPlace`].
    pub const fn on_read(&mut self) -> Result<ServerAction, OutOfPlace> {
        let ServerState::Read { octets } = self.state else {
            return Err(OutOfPlace { what: "the end of a Read" });
        };
        self.state = ServerState::Sink { octets };
        Ok(ServerAction::GoAhead)
    }

    /// Handles the completion of the Write.
    ///
    /// # Errors
    ///
    /// [`OutOfPlace`].
    pub fn on_written(&mut self) -> Result<Option<ServerAction>, OutOfPlace> {
        if !self.writing {
            return Err(OutOfPlace { what: "the end of a Write" });
        }
        self.writing = false;
        Ok(self.waiting.take().map(|source| self.read(source)))
    }
}

#[cfg(test)]
mod tests {
    use warpline::STag;

    use super::*;

    fn buffer(octets: u32) -> Advertisement {
        Advertisement { to: 0x1000, stag: STag(7), len: octets }
    }

    #[test]
    fn the_client_advertises_two_buffers_a_ping() {
        let mut client = ClientState::default();
        for _ in 0..2 {
            client.begin().unwrap();
            assert_eq!(client.on_message(), Ok(ClientAction::AdvertiseSink));
            assert_eq!(client.on_message(), Ok(ClientAction::Finish));
        }
    }

    #[test]
    fn the_client_takes_no_message_that_it_does_not_wait_for() {
        let mut client = ClientState::default();
        assert!(client.on_message().is_err());
        client.begin().unwrap();
        assert!(client.begin().is_err(), "one is under way");
        assert_eq!(client.on_message(), Ok(ClientAction::AdvertiseSink), "and goes on");
    }

    /// Source, Read, go-ahead, sink, Write with the last message.
    #[test]
    fn the_server_reads_then_writes() {
        let mut server = Server::default();
        for _ in 0..2 {
            assert_eq!(server.on_advertisement(buffer(100)), Ok(Some(ServerAction::Read(buffer(100)))));
            assert_eq!(server.on_read(), Ok(ServerAction::GoAhead));
            let sink = Advertisement { to: 0x2000, ..buffer(100) };
            assert_eq!(server.on_advertisement(sink), Ok(Some(ServerAction::WriteAndTell(sink, 100))));
            assert_eq!(server.on_written(), Ok(None));
        }
    }

    #[test]
    fn the_server_writes_no_more_than_it_read_and_than_there_is_room_for() {
        for (source, sink, written) in [(100, 40, 40), (40, 100, 40)] {
            let mut server = Server::default();
            server.on_advertisement(buffer(source)).unwrap();
            server.on_read().unwrap();
            let action = server.on_advertisement(buffer(sink)).unwrap();
            assert_eq!(action, Some(ServerAction::WriteAndTell(buffer(sink), written)));
        }
    }

    /// The client may hear that the octets were written before we hear that they were acknowledged.
    #[test]
    fn the_next_read_waits_for_the_write_whose_octets_are_in_its_buffer() {
        let mut server = Server::default();
        server.on_advertisement(buffer(9)).unwrap();
        server.on_read().unwrap();
        server.on_advertisement(buffer(9)).unwrap();
        assert_eq!(server.on_advertisement(buffer(8)), Ok(None), "still writing");
        assert!(server.on_advertisement(buffer(8)).is_err(), "only one can wait");
        assert_eq!(server.on_written(), Ok(Some(ServerAction::Read(buffer(8)))));
        assert_eq!(server.on_read(), Ok(ServerAction::GoAhead));
    }

    #[test]
    fn the_server_takes_nothing_out_of_place() {
        let mut server = Server::default();
        assert!(server.on_read().is_err() && server.on_written().is_err(), "nothing was begun");
        server.on_advertisement(buffer(9)).unwrap();
        assert!(server.on_advertisement(buffer(9)).is_err(), "it is reading");
        assert_eq!(server.on_read(), Ok(ServerAction::GoAhead), "and goes on");
    }
}
