//! Rheostat's protocols, one folder per paper.
