//! Rheostat's version stores: memory and disk, one conformance suite.
