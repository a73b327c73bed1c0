//! How a node shows the gRPC port of another one that it is a node of the cluster: the console of each asks all. By `security.cluster_password`, which nodes share already, so that no client's password
//! has to stand in the configuration, or is sent, for it.
//!
//! The header is `authorization: Node TIME MAC`: milliseconds since the Unix epoch, and in hexadecimal digits an HMAC-SHA-256 under the cluster's password over what this is for, the cluster, the node that is
//! asked, and the time. It opens that node and no other, for [`VALID_MS`]. Whoever knows that password is a node, and is believed anyway.

use crate::config::NodeConfig;
use ring::hmac;

/// The header's scheme. It is not case-sensitive (RFC 9110, 11.1).
const SCHEME: &str = "node";

/// So far may the time of a proof be from the clock of the node that is asked, in milliseconds.
const VALID_MS: u64 = 60_000;

/// What the greetings of nodes, under the same key, never begin with.
const PURPOSE: &str = "rheostat: a node asks over gRPC";

/// See the module.
pub(crate) struct NodeProof {
    key: hmac::Key,
    cluster: String,
    /// The node that it is of.
    node: String,
}

/// What a header shows.
#[derive(Debug, PartialEq)]
pub(crate) struct Shown {
    at_ms: u64,
    mac: Vec<u8>,
}

/// What `header` shows, if it is of a node; `Some(None)`: it is not well formed.
pub(crate) fn shown(header: &[u8]) -> Option<Option<Shown>> {
    let (scheme, rest) = header.split_at_checked(SCHEME.len() + 1)?;
    if !scheme[..SCHEME.len()].eq_ignore_ascii_case(SCHEME.as_bytes()) || scheme[SCHEME.len()] != b' ' {
        return None;
    }
    let parse = || {
        let (time, mac) = std::str::from_utf8(rest).ok()?.split_once(' ')?;
        let at_ms = time.bytes().all(|byte| byte.is_ascii_digit()).then(|| time.parse().ok())??;
        let pairs =
            (mac.len() == 64 && mac.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| (0..32).map(|pair| &mac[2 * pair..2 * pair + 2]))?;
        Some(Shown { at_ms, mac: pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect() })
    };
    Some(parse())
}

impl NodeProof {
    /// That of the node of `config`; none without a password that nodes share.
    pub(crate) fn new(config: &NodeConfig) -> Option<NodeProof> {
        let password = config.security.cluster_password.as_ref()?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, password.0.as_bytes());
        Some(NodeProof { key, cluster: config.cluster.clone(), node: config.node.clone() })
    }

    fn said(&self, asked: &str, at_ms: u64) -> Vec<u8> {
        // Names have no such byte in them, so no two say the same.
        [PURPOSE, &self.cluster, asked, &at_ms.to_string()].join("\0").into_bytes()
    }

    /// The header's value for a question to the node called `asked`.
    pub(crate) fn header(&self, asked: &str, now_ms: u64) -> String {
        let mac = hmac::sign(&self.key, &self.said(asked, now_ms));
        let digits: String = mac.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("Node {now_ms} {digits}")
    }

    /// Whether who shows this is a node of the cluster, and asks this one, now.
    pub(crate) fn is_of_a_node(&self, shown: &Shown, now_ms: u64) -> bool {
        now_ms.abs_diff(shown.at_ms) <= VALID_MS && hmac::verify(&self.key, &self.said(&self.node, shown.at_ms), &shown.mac).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn proof(cluster: &str, node: &str, password: &str) -> NodeProof {
        let mut config = NodeConfig::new(cluster, node, "a");
        assert!(NodeProof::new(&config).is_none(), "nothing is shared");
        config.security.cluster_password = Some(Secret(password.into()));
        NodeProof::new(&config).unwrap()
    }

    #[test]
    fn who_knows_the_cluster_s_password_is_let_in_at_the_node_that_it_asks_for_a_while() {
        let (a, b) = (proof("c", "a1", "secret"), proof("c", "b1", "secret"));
        let header = a.header("b1", 1_000_000);
        let read = |header: &str| shown(header.as_bytes()).expect("of a node").expect("well formed");
        let accepts = |of: &NodeProof, header: &str, now_ms| of.is_of_a_node(&read(header), now_ms);
        for now_ms in [1_000_000, 1_000_000 + VALID_MS, 1_000_000 - VALID_MS] {
            assert!(accepts(&b, &header, now_ms), "{now_ms}");
        }
        for now_ms in [1_000_001 + VALID_MS, 999_999 - VALID_MS, 0, u64::MAX] {
            assert!(!accepts(&b, &header, now_ms), "{now_ms}");
        }
        assert!(accepts(&b, &header.replacen("Node", "nOdE", 1), 1_000_000));
        assert!(!accepts(&a, &header, 1_000_000), "it is for another node");
        assert!(!accepts(&proof("d", "b1", "secret"), &header, 1_000_000), "of another cluster");
        assert!(!accepts(&proof("c", "b1", "Secret"), &header, 1_000_000), "under another password");
        assert!(!accepts(&b, &header.replacen("1000000", "1000001", 1), 1_000_000), "of another time");
        assert!(!accepts(&proof("cb", "1", "secret"), &proof("c", "x", "secret").header("b1", 9), 9), "names are told apart");
        for at in header.len() - 64..header.len() {
            let mut wrong = header.clone().into_bytes();
            wrong[at] = if wrong[at] == b'0' { b'1' } else { b'0' };
            assert!(!accepts(&b, std::str::from_utf8(&wrong).unwrap(), 1_000_000));
        }
    }

    #[test]
    fn what_is_no_proof_is_told_from_what_is_not_well_formed() {
        for other in ["", "Node", "Bearer x", "Nodes 1 2", "Basic bm9kZTp4"] {
            assert_eq!(shown(other.as_bytes()), None, "{other:?}");
        }
        let digits = "0".repeat(64);
        assert_eq!(shown(format!("Node 7 {digits}").as_bytes()), Some(Some(Shown { at_ms: 7, mac: vec![0; 32] })));
        let long = format!("Node {} {digits}", "9".repeat(30));
        for malformed in [
            "Node ",
            "Node 7",
            "Node 7 ",
            "Node 7 00",
            &format!("Node -7 {digits}"),
            &format!("Node +7 {digits}"),
            &format!("Node 7 {digits}0"),
            &format!("Node 7 {}", "é".repeat(32)),
            &long,
            &format!("Node 7  {digits}"),
        ] {
            assert_eq!(shown(malformed.as_bytes()), Some(None), "{malformed:?}");
        }
        assert_eq!(shown(b"Node \xff\xfe 00"), Some(None));
    }
}
