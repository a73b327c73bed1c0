//! A partition server with replicas: each of them keeps its records, one runs it ([`rheostat_group::Replicas`]).

use crate::gate::Gate;
use crate::{AnyStore, Driver, Halt, Halted, Inner, Left, Stack, frame, halted, metadata_in, newest_on_disk, server};
use rheostat_core::DcId;
use rheostat_core::ids::Place;
use rheostat_core::protocol::Protocol;
use rheostat_core::replica::{PartitionServer, ReplicaConfig};
use rheostat_core::session::Session;
use rheostat_core::store::{Cut, Recovered};
use rheostat_core::version::{Key, Value, VersionId};
use rheostat_core::wire::{Wire, WireError};
use rheostat_counters::{Counting, Definition, Options};
use rheostat_group::{Ahead, Replicas, Seat, frame_inside};

/// How the server of protocol `P` is made.
struct SeatOf<P: Protocol> {
    options: P::Options,
    counters: Options,
    holders: Vec<DcId>,
}

impl<P: Protocol> Seat for SeatOf<P> {
    type Meta = P::Meta;
    type Driver = Driver<P::Meta>;
    type Server = Counting;

    fn make(&mut self, config: ReplicaConfig, store: Ahead<P::Meta, Driver<P::Meta>>, found: Recovered) -> Result<Counting, String> {
        server::<P>(config, &self.options, &self.counters, AnyStore::Ahead(Box::new(store)), found)
    }

    fn store<'s>(&self, server: &'s Counting) -> &'s Ahead<P::Meta, Driver<P::Meta>> {
        match server.inner::<Inner<P>>().store() {
            AnyStore::Ahead(store) => store,
            _ => unreachable!("a server with replicas was made over another store"),
        }
    }

    fn store_mut<'s>(&self, server: &'s mut Counting) -> &'s mut Ahead<P::Meta, Driver<P::Meta>> {
        match server.inner_mut::<Inner<P>>().store_mut() {
            AnyStore::Ahead(store) => store,
            _ => unreachable!("a server with replicas was made over another store"),
        }
    }

    fn take(&self, server: Counting) -> Ahead<P::Meta, Driver<P::Meta>> {
        match server.into_inner::<Inner<P>>().into_store() {
            AnyStore::Ahead(store) => *store,
            _ => unreachable!("a server with replicas was made over another store"),
        }
    }

    fn protocol(&self) -> &'static str {
        P::NAME
    }

    fn holders(&self) -> &[DcId] {
        &self.holders
    }

    fn reads_alone(&self) -> bool {
        !<P::Cut as Cut<P::Meta>>::SIBLINGS
    }

    fn is_plain(&self, value: &[u8]) -> bool {
        !Definition::is(value)
    }

    fn new_session(&self) -> Session {
        Session::new(P::Client::default())
    }

    fn decode_session(&self, bytes: &[u8]) -> Result<Session, WireError> {
        Ok(Session::new(P::Client::from_bytes(bytes)?))
    }
}

pub(super) struct Replicated<P: Protocol> {
    server: Gate<Replicas<SeatOf<P>>>,
    options: P::Options,
    counters: Options,
    place: Place,
}

impl<P: Protocol> Replicated<P> {
    pub(super) fn around(
        config: ReplicaConfig,
        options: P::Options,
        counters: Options,
        store: Driver<P::Meta>,
        found: Recovered,
    ) -> Result<Box<dyn Stack>, String> {
        let place = config.place;
        if place.replicas > P::CAN.most_replicas {
            return Err(format!(
                "protocol {} can have {} servers of a partition in a data center, not {}",
                P::NAME,
                P::CAN.most_replicas,
                place.replicas
            ));
        }
        let seat = SeatOf::<P> { options: options.clone(), counters: counters.clone(), holders: P::holders(&place, &options) };
        let bounds = (&config).into();
        // What members tell each other is decided when it comes, and applied then.
        let server = Gate::new(Replicas::new(seat, config, store, found)?, bounds, |_, _, _, _| false);
        Ok(Box::new(Replicated::<P> { server, options, counters, place }))
    }

    /// What `frame` carries from one partition server to another, if it does.
    fn inside(bytes: &[u8]) -> Option<Value> {
        frame_inside(bytes).ok()?.ok()
    }
}

impl<P: Protocol> Stack for Replicated<P> {
    fn server(&mut self) -> &mut dyn PartitionServer {
        &mut self.server
    }

    fn look(&self) -> &dyn PartitionServer {
        &self.server
    }

    fn into_server(self: Box<Self>) -> Box<dyn PartitionServer> {
        Box::new(self.server)
    }

    fn halt(self: Box<Self>, how: Halt) -> Halted {
        let Replicated { server, options, counters, place } = *self;
        let Some(Driver::Memory(mut store)) = server.inner.into_store() else { panic!("only a server over a simulated disk can be halted") };
        let (image, found, records_lost) = halted(&mut store, how);
        let newest_own = found.newest.get(place.dc().index()).copied().unwrap_or_default();
        let restart = Box::new(Left::<P> { options, counters, store: image, found });
        // What the group has told others is in a majority's logs, not in each.
        Halted { restart, newest_own, records_lost, first_lost: Vec::new() }
    }

    fn on_disk(&self, key: &[u8]) -> Option<VersionId> {
        match self.server.inner.store().map(Ahead::base) {
            Some(Driver::Memory(store)) => newest_on_disk(store, key),
            _ => panic!("only a simulated disk can be looked at"),
        }
    }

    fn resumes(&self, bytes: &[u8]) -> bool {
        Self::inside(bytes).is_some_and(|bytes| frame::resumes::<P>(&bytes))
    }

    fn has_updates(&self, bytes: &[u8]) -> bool {
        Self::inside(bytes).is_some_and(|bytes| frame::has_updates::<P>(&bytes))
    }

    fn kind(&self, remote: bool, bytes: &[u8]) -> String {
        match frame_inside(bytes) {
            Err(_) => "?".into(),
            Ok(Err(_)) => "between replicas".into(),
            Ok(Ok(bytes)) => frame::kind::<P>(remote, &bytes),
        }
    }

    fn metadata(&self, bytes: &[u8]) -> Vec<usize> {
        Self::inside(bytes).map_or_else(Vec::new, |bytes| frame::metadata::<P>(&bytes))
    }

    fn stored_metadata(self: Box<Self>, keys: &[Key]) -> Vec<usize> {
        self.server.inner.into_store().map_or_else(Vec::new, |mut store| metadata_in(&mut store, keys))
    }

    fn describe(&self, remote: bool, bytes: &[u8]) -> String {
        match frame_inside(bytes) {
            Err(error) => error.to_string(),
            Ok(Err(words)) => words,
            Ok(Ok(bytes)) => frame::describe::<P>(remote, &bytes),
        }
    }
}
