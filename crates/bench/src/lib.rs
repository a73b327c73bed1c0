//! Rheostat's workloads, latency recording and experiments.
