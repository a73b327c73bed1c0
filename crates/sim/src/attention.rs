//! Whether anybody asks: a server of which nobody has asked anything for a while is told so, and does seldom then what only keeps others informed.
//!
//! As nodes have it: a server that is asked, or at which an operation waits, tells all that it talks to; those in another data center tell their neighbours. Words can be lost, and are said again.

use crate::marks;
use crate::world::{Event, ServerIndex, World};
use rheostat_core::DcId;

/// What a server knows of who asks. Times are true ones, in microseconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Attention {
    /// Somebody has asked, as far as it knows, of late.
    until_us: u64,
    /// Others are told again from then on: by one that is asked, and by one that passes on what it has heard.
    tell_us: u64,
    pass_on_us: u64,
    sleeps: bool,
}

impl World<'_> {
    /// `server` starts: it is awake, and takes part in what goes on.
    pub(crate) fn awake(&mut self, server: ServerIndex) {
        self.servers[server].attention = Attention { until_us: self.now_us + self.plan.sleeps_us, ..Attention::default() };
    }

    /// An operation has come to `server`, or waits there.
    pub(crate) fn asked(&mut self, server: ServerIndex) {
        let (now_us, sleeps_us) = (self.now_us, self.plan.sleeps_us);
        let attention = &mut self.servers[server].attention;
        if sleeps_us == 0 || now_us < attention.tell_us {
            return;
        }
        attention.tell_us = now_us + sleeps_us / 4;
        attention.until_us = now_us + sleeps_us;
        self.tell_of_asking(server, true);
    }

    fn tell_of_asking(&mut self, server: ServerIndex, first: bool) {
        let here = self.servers[server].id.dc;
        for other in self.others_of(server) {
            if (first || self.servers[other].id.dc == here)
                && let Some(way_us) = self.way_us(server, other)
            {
                self.schedule(self.now_us + way_us, Event::Woken { server: other, from: here, first });
            }
        }
    }

    /// A server of `from` says that somebody asks; `first`: of itself.
    pub(crate) fn hears_of_asking(&mut self, server: ServerIndex, from: DcId, first: bool) {
        let (now_us, sleeps_us) = (self.now_us, self.plan.sleeps_us);
        let state = &mut self.servers[server];
        state.attention.until_us = now_us + sleeps_us;
        if first && from != state.id.dc && now_us >= state.attention.pass_on_us {
            state.attention.pass_on_us = now_us + sleeps_us / 4;
            self.tell_of_asking(server, false);
        }
    }

    /// Tells `server`, which is `node`, whether anybody asks, if that has changed. In the end everybody is awake.
    pub(crate) fn pace(&mut self, server: ServerIndex, node: &mut dyn rheostat_stack::Stack) {
        if !self.healed && !self.servers[server].waiting.is_empty() {
            self.asked(server);
        }
        let state = &mut self.servers[server];
        let sleeps = !self.healed && self.plan.sleeps_us > 0 && self.now_us >= state.attention.until_us && state.waiting.is_empty();
        if sleeps != state.attention.sleeps {
            state.attention.sleeps = sleeps;
            node.server().set_quiet(sleeps);
            self.marks.see_times(marks::ASLEEP, sleeps.into());
        }
    }
}
