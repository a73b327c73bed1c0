//! Rheostat's checkers: pure functions over recorded histories.
