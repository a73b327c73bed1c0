//! Small plans that are made to be looked at: each says what to look at, under which protocols, and what comes of it.

use crate::bounds::bounded;
use rheostat_protocols::registry;
use rheostat_sim::plan::Plan;
use serde::Serialize;

/// What comes of a scenario under a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// Every promise that it is held to is kept.
    Kept,
    /// This one is broken.
    Broken(&'static str),
}

/// A scenario under one protocol.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Its name: the protocol's, where the scenario needs no more.
    pub name: &'static str,
    /// The protocol.
    pub protocol: &'static str,
    /// Lines of the plan beside, which come last.
    pub lines: &'static str,
    /// What comes of it.
    pub expected: Expected,
}

/// A small plan.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name in addresses.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// What to look at, in two sentences.
    pub look: &'static str,
    /// The plan, without protocol and options.
    plan: &'static str,
    /// Options that protocols get which have them.
    options: &'static [(&'static str, i64)],
    /// Under what it can be run; the first is what a page begins with.
    pub variants: &'static [Variant],
}

/// A scenario as a page shows it.
#[derive(Debug, Serialize)]
pub struct Shown {
    name: &'static str,
    title: &'static str,
    look: &'static str,
    variants: Vec<ShownVariant>,
}

#[derive(Debug, Serialize)]
struct ShownVariant {
    name: &'static str,
    protocol: &'static str,
    /// The promise that is broken, if one is.
    breaks: Option<&'static str>,
}

const fn variant(protocol: &'static str, expected: Expected) -> Variant {
    Variant { name: protocol, protocol, lines: "", expected }
}

const fn kept(protocol: &'static str) -> Variant {
    variant(protocol, Expected::Kept)
}

const fn broken(protocol: &'static str, promise: &'static str) -> Variant {
    variant(protocol, Expected::Broken(promise))
}

/// Under the first protocols this promise is broken, and under the others none.
macro_rules! broken_but {
    ($promise:literal, $($broken:literal)*; $($kept:literal)*) => {
        &[$(broken($broken, $promise),)* $(kept($kept),)*]
    };
}

/// Seldom enough that a diagram can be read, often enough that nobody waits for long.
const CALM: &[(&str, i64)] = &[("heartbeat_ms", 50), ("stabilization_ms", 50), ("fan_out", 4)];

/// Every scenario; a page begins with the first. `staged` is in few of them: of its reads and plain writes the simulator lets two of three have a bound, by the plan's seed, and what a
/// bounded read promises depends on that.
pub const ALL: &[Scenario] = &[
    Scenario {
        name: "photo",
        title: "A comment before its photo",
        look: "A client in data center 0 writes a photo and then a comment; the comment's message overtakes the photo's, which is slow. Who promises causality hides the comment in data center 1 until the photo \
               is there, and who does not shows it alone.",
        plan: include_str!("../scenarios/photo.plan"),
        options: CALM,
        variants: broken_but!("causal", "eventual" "quorum" "session"; "causal" "gentlerain" "cops" "hybrid" "adaptive" "strong"),
    },
    Scenario {
        name: "reply",
        title: "An answer without its question, over three data centers",
        look: "Data center 1 reads a question of data center 0 and answers it; data center 2 gets the answer first. That the answer follows a question of somebody else, only what its reader had read can say: look at what \
               the answer's version needs.",
        plan: include_str!("../scenarios/reply.plan"),
        options: CALM,
        variants: broken_but!("causal", "eventual" "quorum" "session"; "causal" "gentlerain" "cops" "hybrid" "adaptive" "strong"),
    },
    Scenario {
        name: "conflict",
        title: "Two writes at the same time",
        look: "Both data centers write the same key before they hear of each other, and each reads its own. When everything has arrived the version with the greater timestamp stands everywhere: all converge.",
        plan: include_str!("../scenarios/conflict.plan"),
        options: CALM,
        variants: broken_but!("convergence",; "eventual" "causal" "gentlerain" "cops" "hybrid" "adaptive" "session" "quorum" "strong"),
    },
    Scenario {
        name: "moved",
        title: "A session that moves does not find its write",
        look: "A client fills its cart in data center 0, goes on in data center 1 with its session's token, and reads the cart. Its token says what it has written: who takes notice of that lets it wait, and the others answer at once with nothing.",
        plan: include_str!("../scenarios/moved.plan"),
        options: CALM,
        variants: broken_but!("read-your-writes", "eventual" "quorum"; "causal" "gentlerain" "cops" "hybrid" "adaptive" "session" "strong"),
    },
    Scenario {
        name: "crossing",
        title: "Two writes that miss each other (store buffering)",
        look: "Each of two clients writes one key and then reads the other's, in another data center. That neither sees the other is allowed by causality, and by nothing that acts as one copy would.",
        plan: include_str!("../scenarios/crossing.plan"),
        options: CALM,
        variants: broken_but!("linearizable", "causal" "eventual" "gentlerain" "cops" "hybrid" "adaptive" "session" "quorum"; "strong"),
    },
    Scenario {
        name: "published",
        title: "CausalSpartanX as published: an effect without its cause",
        look: "A read raises the stable vector of the server that it comes to by what its client depends on, though that has not arrived there: then d is shown, and f, which it follows, is not. The simulator found this by itself; \
               under the corrected rule the same course keeps its promises.",
        plan: include_str!("../../sim/plans/causal-published-stable-vector.plan"),
        options: &[],
        variants: &[
            Variant { name: "causal, as published", protocol: "causal", lines: "option published = true\n", expected: Expected::Broken("causal") },
            Variant { name: "causal, corrected", protocol: "causal", lines: "option published = false\n", expected: Expected::Kept },
        ],
    },
    Scenario {
        name: "sale",
        title: "The last seat, read and then written",
        look: "Two buyers read that a seat is free and then write their names, in two data centers, 20 ms apart; the plan's buyers write whatever they have read. Where reads may miss what was written elsewhere the checker objects; \
               under strong it does not, and the seat is sold twice all the same, because reading and then writing decides nothing.",
        plan: include_str!("../scenarios/sale.plan"),
        options: CALM,
        variants: broken_but!("linearizable", "eventual" "causal" "gentlerain" "cops" "hybrid" "adaptive" "session" "quorum"; "strong"),
    },
    Scenario {
        name: "claim",
        title: "The last seat, claimed (SET NX)",
        look: "The same two buyers claim the seat, if nobody has it yet. Under strong and staged one of them gets it; most others refuse, because they cannot decide that, and session decides for one data center only, so it is sold in both.",
        plan: include_str!("../scenarios/claim.plan"),
        options: CALM,
        variants: broken_but!("linearizable", "session"; "strong" "staged" "causal" "eventual" "gentlerain" "cops" "hybrid" "adaptive" "quorum"),
    },
    Scenario {
        name: "tickets",
        title: "Three tickets, a counter with a bound",
        look: "A counter begins at 3 and never goes below 0; each data center holds rights to some of it. Each sells two, one of them is refused where its rights have run out, and in no protocol are four sold.",
        plan: include_str!("../scenarios/tickets.plan"),
        options: CALM,
        variants: broken_but!("convergence",; "causal" "eventual" "gentlerain" "cops" "hybrid" "adaptive" "session" "quorum" "strong" "staged"),
    },
    Scenario {
        name: "oversold",
        title: "A counter that is oversold, by a planted bug",
        look: "Data center 1 is down, and data center 0 takes its rights; a server that starts again has to greet the others before it uses any. With the planted bug it does not, and spends what it does not have any more.",
        plan: include_str!("../scenarios/oversold.plan"),
        options: &[],
        variants: &[
            Variant {
                name: "eventual, planted bug",
                protocol: "eventual",
                lines: "planted counter-spends-without-greeting\n",
                expected: Expected::Broken("counters"),
            },
            kept("eventual"),
        ],
    },
    Scenario {
        name: "lock",
        title: "A broken lock (Peterson's)",
        look: "Two clients in two data centers take Peterson's lock: each says that it wants it, lets the other go first, and enters if the other does not want it. Where a read can miss the other's wish both enter; under strong \
               at most one does, since one of the two reads comes after both writes.",
        plan: include_str!("../scenarios/lock.plan"),
        options: CALM,
        variants: broken_but!("linearizable", "eventual" "causal" "gentlerain" "cops" "hybrid" "adaptive" "session" "quorum"; "strong"),
    },
];

impl Scenario {
    /// Its plan under `variant`.
    ///
    /// # Errors
    /// It is none of its own, or the plan makes no sense; a test holds that none of [`ALL`] does that.
    pub fn plan(&self, variant: &Variant) -> Result<Plan, String> {
        let mut text = format!("protocol {}\n", variant.protocol);
        // Groups choose their own times.
        let grouped = registry::info(variant.protocol).is_some_and(|info| info.can.agrees());
        for (name, value) in self.options.iter().filter(|_| !grouped) {
            let option = toml::Table::from_iter([((*name).to_owned(), (*value).into())]);
            if registry::check_options(variant.protocol, &option).is_ok() {
                text.push_str(&format!("option {name} = {value}\n"));
            }
        }
        text.push_str(self.plan);
        text.push_str(variant.lines);
        let plan = Plan::parse(&text).map_err(|error| error.to_string())?;
        bounded(&plan)?;
        Ok(plan)
    }

    /// As a page shows it.
    pub(crate) fn shown(&self) -> Shown {
        let breaks = |expected| if let Expected::Broken(promise) = expected { Some(promise) } else { None };
        let variants =
            self.variants.iter().map(|variant| ShownVariant { name: variant.name, protocol: variant.protocol, breaks: breaks(variant.expected) });
        Shown { name: self.name, title: self.title, look: self.look, variants: variants.collect() }
    }
}

/// The plan of the scenario called `name`, under the variant of that name, or its first.
///
/// # Errors
/// There is no such scenario or variant.
pub fn plan(name: &str, variant: Option<&str>) -> Result<Plan, String> {
    let names = |all: &mut dyn Iterator<Item = &'static str>| all.collect::<Vec<_>>().join(", ");
    let scenario = ALL
        .iter()
        .find(|scenario| scenario.name == name)
        .ok_or_else(|| format!("there is no such scenario; there are: {}", names(&mut ALL.iter().map(|scenario| scenario.name))))?;
    let found = match variant {
        None => scenario.variants.first(),
        Some(wanted) => scenario.variants.iter().find(|variant| variant.name == wanted),
    };
    let variant = found.ok_or_else(|| {
        format!("scenario {name} cannot be run so; it can under: {}", names(&mut scenario.variants.iter().map(|variant| variant.name)))
    })?;
    scenario.plan(variant)
}
