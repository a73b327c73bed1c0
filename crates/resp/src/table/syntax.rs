//! Arguments as documentation: for `COMMAND DOCS` and for the syntax lines that people read.

/// What an argument is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A key.
    Key,
    /// Any bytes.
    String,
    /// A 64-bit integer.
    Integer,
    /// A time since the Unix epoch.
    UnixTime,
    /// A glob pattern.
    Pattern,
    /// The token alone.
    PureToken,
    /// One of its parts.
    OneOf,
    /// All its parts, in order.
    Block,
}

impl Kind {
    /// Its name in `COMMAND DOCS`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Key => "key",
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::UnixTime => "unix-time",
            Kind::Pattern => "pattern",
            Kind::PureToken => "pure-token",
            Kind::OneOf => "oneof",
            Kind::Block => "block",
        }
    }
}

/// One argument of a command.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The word before it.
    pub token: Option<&'static str>,
    /// Whether it may be left out.
    pub is_optional: bool,
    /// Whether it may be repeated.
    pub is_multiple: bool,
    /// What it is made of.
    pub parts: &'static [Argument],
}

impl Argument {
    /// An argument of `kind`.
    pub const fn new(name: &'static str, kind: Kind) -> Argument {
        Argument { name, kind, token: None, is_optional: false, is_multiple: false, parts: &[] }
    }

    /// A word that stands for itself.
    pub const fn token(name: &'static str, token: &'static str) -> Argument {
        Argument::new(name, Kind::PureToken).after(token)
    }

    /// One of `parts`.
    pub const fn one_of(name: &'static str, parts: &'static [Argument]) -> Argument {
        Argument { parts, ..Argument::new(name, Kind::OneOf) }
    }

    /// All of `parts`.
    pub const fn block(name: &'static str, parts: &'static [Argument]) -> Argument {
        Argument { parts, ..Argument::new(name, Kind::Block) }
    }

    /// This argument, after the word `token`.
    pub const fn after(self, token: &'static str) -> Argument {
        Argument { token: Some(token), ..self }
    }

    /// This argument, which may be left out.
    pub const fn optional(self) -> Argument {
        Argument { is_optional: true, ..self }
    }

    /// This argument, once or more often.
    pub const fn multiple(self) -> Argument {
        Argument { is_multiple: true, ..self }
    }

    /// Whether it is a key or has one among its parts.
    pub fn has_key(&self) -> bool {
        self.kind == Kind::Key || self.parts.iter().any(Argument::has_key)
    }

    /// Appends its syntax, as manuals write it: `[EX seconds]`.
    pub fn write_syntax(&self, out: &mut String) {
        if self.is_optional {
            out.push('[');
        }
        if let Some(token) = self.token {
            out.push_str(token);
            out.push_str(if self.kind == Kind::PureToken { "" } else { " " });
        }
        self.write_once(out);
        if self.is_multiple {
            // The word before it is not repeated.
            out.push_str(" [");
            self.write_once(out);
            out.push_str(" ...]");
        }
        if self.is_optional {
            out.push(']');
        }
    }

    fn write_once(&self, out: &mut String) {
        let angled = self.kind == Kind::OneOf && !self.is_optional;
        let separator = if self.kind == Kind::OneOf { " | " } else { " " };
        if angled {
            out.push('<');
        }
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                out.push_str(separator);
            }
            part.write_syntax(out);
        }
        if angled {
            out.push('>');
        }
        if self.parts.is_empty() && self.kind != Kind::PureToken {
            out.push_str(self.name);
        }
    }
}

impl super::Entry {
    /// The whole syntax: `CLIENT SETNAME name`.
    pub fn syntax(&self) -> String {
        let mut out = self.name.to_uppercase().replace('|', " ");
        for argument in self.arguments {
            out.push(' ');
            argument.write_syntax(&mut out);
        }
        out
    }
}
