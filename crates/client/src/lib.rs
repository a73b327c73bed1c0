//! Rheostat's Rust client.
