//! The `rheostat` command.

fn main() {}
