//! Rheostat's deterministic simulator.
