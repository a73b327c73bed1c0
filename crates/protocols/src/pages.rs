//! A server's state in pages, for one that is further behind than the log that the others keep: the newest version of each key, slot by slot.

use rheostat_core::protocol::Protocol;
use rheostat_core::slots;
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::version::{Item, Update};
use smallvec::smallvec;

/// Bytes of versions in one page, about.
const PAGE_BYTES: usize = 128 << 10;
/// Keys of one slot that a page asks the store for at once.
pub(crate) const PAGE_KEYS: usize = 256;
/// Slots that one page goes through at most.
const PAGE_SLOTS: u16 = 2048;

/// A place in the state: a slot, and where to go on in it.
pub(crate) type PagePlace = (u16, u32);

/// The newest versions of the keys from `from` on, one item each, as many as make a page, and where the next one begins; `None` after the last slot.
pub(crate) fn page<P: Protocol, S: Store<P::Meta>>(step: &mut Step<'_, P, S>, from: PagePlace) -> (Vec<Update<P::Meta>>, Option<PagePlace>) {
    let (mut slot, mut place) = from;
    let (mut updates, mut bytes) = (Vec::new(), 0);
    while slot < slots::SLOTS {
        if bytes >= PAGE_BYTES || slot - from.0 >= PAGE_SLOTS {
            return (updates, Some((slot, place)));
        }
        let found = step.store.scan(slot, place, PAGE_KEYS);
        for key in found.keys {
            if let Some(version) = step.store.latest(&key, |_| true).cloned() {
                bytes += key.len() + version.value.as_ref().map_or(0, |value| value.len()) + 32;
                let items = smallvec![Item { key, value: version.value, expires_ms: version.expires_ms }];
                updates.push(Update { id: version.id, items, meta: version.meta });
            }
        }
        (slot, place) = found.next.map_or((slot + 1, 0), |next| (slot, next));
    }
    (updates, None)
}
