//! Values that stand side by side, in keyspaces whose protocol keeps them (`quorum`).

use crate::session::{Copies, Store, Tries, quality, written};
use crate::{Error, Put, Read, Session, Version, v1};
use bytes::Bytes;

impl Session {
    /// All values of `key` that stand side by side, newest first; none if the key is absent. The session remembers which versions were seen, for the next [`Session::replace`] of this key.
    ///
    /// # Errors
    /// See [`Error`]; retried as the options say. Refused where a key has one value.
    pub async fn siblings(&mut self, key: impl Into<Bytes>) -> Result<Vec<Read>, Error> {
        let key = key.into();
        let mut tries = Tries::reading(self.client.options());
        let reply = loop {
            let look = |mut store: Store, context| {
                let message = v1::GetRequest { context: Some(context), key: key.clone(), dial: self.served_dial(self.dial) };
                let request = self.client.request_within(message, tries.left());
                async move { store.siblings(request).await }
            };
            match self.send(&key, &tries, look).await {
                Err(failed) if tries.again(&failed.error).await => {}
                result => break result?,
            }
        };
        let quality = quality(reply.quality)?;
        self.set_token(reply.session);
        Ok(reply.reads.into_iter().map(|read| Read::new(read, quality)).collect())
    }

    /// Writes one key in the place of the values that this session has seen of it by the last [`Session::siblings`] or [`Session::replace`], and of no others; of none, if the last such look was at another key.
    ///
    /// # Errors
    /// See [`Error`]; not retried. Refused where a key has one value, and where too many stand side by side already.
    pub async fn replace(&mut self, put: Put) -> Result<Version, Error> {
        let (key, item, tries) = (put.key.clone(), put.into_item(), Tries::new(self.client.options()));
        let replace = |mut store: Store, context| {
            let request =
                self.client.request(v1::ReplaceRequest { context: Some(context), item: Some(item.clone()), dial: self.served_dial(self.dial) });
            async move { store.replace(request).await }
        };
        let sent = self.send(&key, &tries, replace).await;
        let reply = self.told(sent)?;
        self.copies = reply.copies.map(Copies::from);
        self.set_token(reply.session);
        written(reply.version)
    }

    /// The value of `key`. Where several stand side by side, `resolve` makes one of them, which is written in their place: the application's own resolver.
    ///
    /// # Errors
    /// As [`Session::siblings`] and [`Session::replace`].
    pub async fn resolve(&mut self, key: impl Into<Bytes>, resolve: impl FnOnce(&[Bytes]) -> Bytes) -> Result<Option<Bytes>, Error> {
        let key = key.into();
        let mut values: Vec<Bytes> = self.siblings(key.clone()).await?.into_iter().filter_map(|read| read.value).collect();
        if values.len() < 2 {
            return Ok(values.pop());
        }
        let value = resolve(&values);
        self.replace(Put::new(key, value.clone())).await?;
        Ok(Some(value))
    }
}
