//! Planted bugs: faults put in on purpose, so that the checkers can be shown to find them.

/// At most one planted bug, by name. Only the simulator plants one; no configuration can.
///
/// Each use stands at the line that it breaks: `if self.planted.is("heartbeat-overtakes-put") { … }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted(Option<&'static str>);

impl Planted {
    /// No bug: what every server runs.
    pub const NONE: Planted = Planted(None);

    /// The bug called `name`.
    pub const fn bug(name: &'static str) -> Planted {
        Planted(Some(name))
    }

    /// Whether the bug called `name` is planted.
    #[inline]
    pub fn is(&self, name: &str) -> bool {
        match self.0 {
            None => false,
            Some(planted) => planted == name,
        }
    }

    /// The name of the planted bug, if there is one.
    pub fn name(&self) -> Option<&'static str> {
        self.0
    }
}
