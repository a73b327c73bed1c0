//! Execution (step 17): decided batches are made in their order, everywhere alike.

use super::message::{Batch, Command, Held, Reply};
use super::record::{Record, Stored};
use super::server::Staged;
use rheostat_clock::{DcId, Timestamp};
use rheostat_core::answer::Read;
use rheostat_core::failure::Failure;
use rheostat_core::operation::{Change, SetCondition};
use rheostat_core::step::Step;
use rheostat_core::store::Store;
use rheostat_core::version::{Item, Key, Update, Version, VersionId};
use smallvec::SmallVec;

/// What a command came to: what it wrote, and what its client gets, if that can be told.
type Made = (SmallVec<[Item; 1]>, Option<Reply>);

/// What a reader at physical time `now_ms` gets of `version`, and up to where the order must be made for it.
pub(super) fn read_of(version: Option<&Version<Timestamp>>, now_ms: u64) -> (Read, Option<Timestamp>) {
    version.map_or_else(|| (Read::default(), None), |version| (Read::of(version, now_ms), Some(version.meta)))
}

/// A key and its newest version, written again as it is.
fn kept_as_it_was((key, newest): (Key, Option<Version<Timestamp>>)) -> Item {
    let expires_ms = newest.as_ref().map_or(0, |newest| newest.expires_ms);
    Item { key, value: newest.and_then(|newest| newest.value), expires_ms }
}

impl Staged {
    /// Makes all batches whose turn has come.
    pub(super) fn execute<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        let before = self.saved.executed;
        while !self.saved.installing
            && let Some(stored) = self.batches.get(&(self.saved.executed + 1)).filter(|stored| stored.chosen)
        {
            let instance = self.saved.executed + 1;
            let decides = stored.batch.writes.iter().any(|held| !matches!(held.command, Command::Put(_)));
            if decides && !stored.made && instance <= self.saved.installed {
                // Some keys are later than this batch here; whoever has made it knows what it came to.
                let from = self.peers.iter().filter(|(_, peer)| peer.executed >= instance).map(|(dc, _)| *dc).next();
                from.into_iter().for_each(|from| self.fetch(step, from, false));
                break;
            }
            self.execute_batch(step, instance, stored.clone());
        }
        if self.saved.executed > before {
            self.have_executed(step);
        }
    }

    fn execute_batch<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, instance: u64, stored: Stored) {
        let Batch { cutoff, mut writes, next } = stored.batch;
        self.last_writes = writes.len() as u32;
        writes.retain(|held| held.ordered || !self.is_repeated(instance, held.id));
        for held in &mut writes {
            // What others have made of a command may be known here before it is made here; its client is told what was there before, if that can be said.
            let own = self.held.get(&held.id).filter(|_| stored.made && self.own.contains_key(&held.id)).map(|own| own.held.command.clone());
            let decides = own.as_ref().is_some_and(|own| !matches!(own, Command::Put(_)));
            let again = own.filter(|_| instance > self.saved.installed);
            let told = !decides || again.is_some();
            let (items, reply) = self.make(step, held.id, held.ordered, again.unwrap_or_else(|| held.command.clone()));
            let reply = reply.filter(|_| told);
            let meta = if held.ordered { held.id.written } else { cutoff };
            if !items.is_empty() {
                self.put(step, Update { id: held.id, items: items.clone(), meta }, held.ordered);
            }
            held.command = Command::Put(items);
            self.is_made(step, held, reply);
        }
        if let Some(stored) = self.batches.get_mut(&instance) {
            stored.made = true;
            stored.batch.writes = writes;
        }
        // After what it wrote: what a crash leaves half made is made again, and nothing of it counts twice.
        self.record(step, &Record::Executed(instance));
        (self.saved.executed, self.saved.cutoff, self.next) = (instance, cutoff, next);
        self.executed_ms = step.now.physical_ms;
    }

    fn put<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, update: Update<Timestamp>, ordered: bool) {
        let VersionId { written, origin } = update.id;
        if origin == self.place.dc() && (!ordered || written <= self.own_made) {
            return step.install(update);
        }
        step.write(update);
    }

    /// What the command of write `id` comes to at its place. It may have been made before a restart: then what it wrote, or something later, is here.
    fn make<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, id: VersionId, ordered: bool, command: Command) -> Made {
        let now_ms = if self.planted.is("write-decided-by-the-clock-here") { step.now.physical_ms } else { id.written.millis() };
        match command {
            Command::Put(items) => (items, Some(Reply::Put(id))),
            Command::Change(key, mut change) => {
                let newest = step.store.latest(&key, |_| true);
                if let Some(newest) = newest.filter(|newest| newest.id >= id) {
                    let again = Item { key, value: newest.value.clone(), expires_ms: newest.expires_ms };
                    return (Some(again).filter(|_| newest.id == id).into_iter().collect(), None);
                }
                let (before, since) = read_of(newest, now_ms);
                if let Change::Set { condition, .. } = &mut change
                    && self.planted.is("condition-taken-as-met")
                {
                    *condition = SetCondition::Always;
                }
                let items: SmallVec<[Item; 1]> = change.item(now_ms, key, &before).into_iter().collect();
                let version = (!items.is_empty()).then_some(id);
                (items, Some(Reply::Changed(before, self.seen(since.unwrap_or(id.written)), version)))
            }
            Command::Test(write) => {
                let target = step.store.latest(&write.target, |_| true).cloned();
                if let Some(newest) = target.as_ref().filter(|newest| newest.id >= id) {
                    let again = Item { key: write.target, value: newest.value.clone(), expires_ms: newest.expires_ms };
                    return (Some(again).filter(|_| newest.id == id).into_iter().collect(), None);
                }
                let tested = step.store.latest(&write.test, |_| true);
                // It was made before a restart, and wrote nothing.
                if ordered && tested.is_some_and(|newest| newest.id > id) {
                    return (SmallVec::new(), None);
                }
                let (before, since) = read_of(tested, now_ms);
                let target = (write.target.clone(), target);
                let (equal, item) = write.decide(&before);
                let version = item.is_some().then_some(id);
                // One in no order leaves its name in any case: whoever makes it again after a restart knows by that.
                let item = item.or_else(|| (!ordered).then(|| kept_as_it_was(target)));
                (item.into_iter().collect(), Some(Reply::Tested(equal, before, self.seen(since.unwrap_or(id.written)), version)))
            }
            Command::PutIf(items, guards) => {
                let mut newest = |key: &Key| step.store.latest(key, |_| true).map(|newest| newest.id);
                if items.iter().any(|item| newest(&item.key) == Some(id)) {
                    return (items, None);
                }
                // It was made before a restart, and wrote nothing, or what has been replaced since.
                if guards.iter().any(|guard| newest(&guard.key) > Some(id)) {
                    return (SmallVec::new(), None);
                }
                let met: Vec<Read> = guards.iter().map(|guard| read_of(step.store.latest(&guard.key, |_| true), now_ms).0).collect();
                let holds = guards.iter().zip(&met).all(|(guard, met)| guard.version == met.present());
                if holds || self.planted.is("counter-guard-taken-as-met") {
                    return (items, Some(Reply::Put(id)));
                }
                (SmallVec::new(), Some(Reply::Unmet(met)))
            }
        }
    }

    /// A write has been made: it waits no more, and who waits for it is answered.
    fn is_made<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, held: &Held, reply: Option<Reply>) {
        self.forget_held(&held.id);
        let Some(own) = self.own.remove(&held.id) else { return };
        self.ahead_ms -= self.ahead_ms.div_ceil(16).min(self.ahead_ms);
        if let Some(wanted_us) = own.wanted_us {
            self.learn_coordination(step.now.monotonic_us, wanted_us.max(own.durable_us.unwrap_or(0)));
        }
        if let (Some(op), Some(reply)) = (own.op, reply) {
            self.remember(step.now.monotonic_us, own.plan, "write", "made".into());
            step.effects.reply(op, reply);
        }
    }

    /// The state is that of another server, which has made the instances up to `executed`.
    pub(super) fn jump<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>, executed: u64, cutoff: Timestamp) {
        (self.saved.executed, self.saved.cutoff, self.saved.forgotten) = (executed, cutoff, executed);
        step.clock.raise(cutoff);
        self.batches.retain(|instance, _| *instance > executed);
        self.give_up_own(step);
        self.have_executed(step);
        self.execute(step);
    }

    /// Of ordered writes that were received here and may have been made in batches that were not seen here, nobody can tell. One in no order is sent until it is in a batch that is seen here: it has left its name if it
    /// was made, and until then nobody is told that nothing so old comes.
    fn give_up_own<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        let last = VersionId { written: self.saved.cutoff, origin: DcId(u8::MAX) };
        let is_ordered = |id: &VersionId| self.held.get(id).is_some_and(|waiting| waiting.held.ordered);
        let ids: Vec<VersionId> = self.own.range(..=last).map(|(id, _)| *id).filter(is_ordered).collect();
        // Others may have made it, and hold it no more.
        self.own.range_mut(..=last).for_each(|(_, own)| own.has.clear());
        for id in ids {
            self.forget_held(&id);
            let Some(own) = self.own.remove(&id) else { continue };
            if let Some(op) = own.op {
                self.remember(step.now.monotonic_us, own.plan, "write", "nobody can tell".into());
                let why = "the write's turn in the order: it may have come while this server was behind".into();
                step.effects.reply(op, Reply::Failed(Failure::Timeout(why)));
            }
        }
    }

    /// The order is made further than before.
    fn have_executed<S: Store<Timestamp>>(&mut self, step: &mut Step<'_, Self, S>) {
        self.saved.closed = self.saved.closed.max(self.saved.cutoff);
        self.raise_floors();
        if self.round.as_ref().is_some_and(|round| round.instance() <= self.saved.executed) {
            self.round = None;
        }
        // Ordered writes up to the cutoff that were in no batch never will be.
        let last = VersionId { written: self.saved.cutoff, origin: DcId(u8::MAX) };
        let late: Vec<VersionId> = self.held.range(..=last).filter(|(_, waiting)| waiting.held.ordered).map(|(id, _)| *id).collect();
        for id in late {
            self.send_again(step, id);
        }
        self.wanted.progress();
        if let Some((_, since_us)) = self.quiet.take_if(|(upto, _)| *upto <= self.saved.cutoff) {
            self.learn_coordination(step.now.monotonic_us, since_us);
        }
        self.serve_ready(step);
        self.cut_log(step);
        self.coordinate(step);
    }
}
