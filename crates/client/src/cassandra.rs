//! Cassandra as a store of bounded counters that their clients keep ([`crate::conditional`]): each data center writes its own part by lightweight transactions, and Cassandra brings it to the others.
//!
//! A counter has one [`Keys`] for each data center of Cassandra, in an order that all of its clients name alike. Whose part is whose follows from that order. With `Consistency::Quorum` one is enough, and
//! every update asks a majority of all.
//!
//! ```no_run
//! # async fn tour() -> Result<(), Box<dyn std::error::Error>> {
//! use rheostat_client::cassandra::{Keys, Settings};
//! use rheostat_client::conditional::{ConditionalCounter, CounterError, Failure};
//! use rheostat_client::{NewCounter, Scope};
//!
//! // One for each of Cassandra's data centers, in an order that never changes.
//! let nodes = vec!["10.0.0.1:9042".to_string(), "10.1.0.1:9042".to_string()];
//! let mut places = Vec::new();
//! for name in ["dc1", "dc2"] {
//!     let settings = Settings { local_data_center: Some(name.into()), ..Settings::new(nodes.clone(), "shop") };
//!     places.push(Keys::connect(settings, "counters").await?);
//! }
//! let mut stock = ConditionalCounter::new("stock", places, 0)?; // 0: dc1 is near
//! stock.create(&NewCounter { lower: Some(0), initial: 10, ..NewCounter::default() }).await?;
//! match stock.add(-1, Scope::Local).await {
//!     Ok(left) => println!("sold; {left} are left, as far as is known here"),
//!     Err(CounterError::Counter(Failure::Refused(why))) => println!("sold out here: {why}"),
//!     Err(other) => return Err(other.into()),
//! }
//! # Ok(())
//! # }
//! ```

use crate::conditional::{ConditionalStore, Found, Outcome};
use bytes::Bytes;
use rheostat_cql::PutIf;
use std::io;

pub use rheostat_cql::{Consistency, Keys, Replication, Settings};

impl ConditionalStore for Keys {
    type Version = i64;
    type Error = io::Error;

    async fn get(&mut self, key: &[u8]) -> Found<i64, io::Error> {
        let found = Keys::get(self, key).await?;
        Ok(found.map_or((None, None), |(value, version)| (Some(value.into()), Some(version))))
    }

    async fn put_if(&mut self, key: &[u8], value: Bytes, expected: Option<i64>) -> Outcome<io::Error> {
        match Keys::put_if(self, key, &value, expected).await {
            PutIf::Made => Outcome::Made,
            PutIf::NotMade => Outcome::NotMade,
            PutIf::Refused(why) => Outcome::Failed(why),
            PutIf::Unknown => Outcome::Unknown,
        }
    }
}
