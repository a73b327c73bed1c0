//! Where the nodes of a cluster file have their folders, if the file does not say it.

use std::path::{Path, PathBuf};

/// The most bytes of a file beside it that is looked at: cluster files are small.
const LARGEST: u64 = 1 << 20;

/// The folder of the cluster file at `file`: beside it, with `.cluster` in place of `.toml`, or behind a name that ends otherwise.
///
/// Without that difference `shop.prod` and `shop.test` would share `shop.cluster`. Where that is there already, and the nodes in it are this file's, it stays theirs: `cluster` is their cluster, `nodes` are their
/// names, each with the address where it listens for RESP, and `cluster_of` says of which cluster another file is, if it is a cluster file.
pub(crate) fn of(file: &Path, cluster: &str, nodes: impl FnOnce() -> Vec<(String, String)>, cluster_of: impl Fn(&str) -> Option<String>) -> PathBuf {
    let short = file.with_extension("cluster");
    if file.extension().is_none_or(|extension| extension == "toml") {
        return short;
    }
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(".cluster");
    let own = file.with_file_name(name);
    if own.exists() || !short.is_dir() {
        return own;
    }
    // Of each node that has a folder in it and is of this cluster: whether it listens where the file says.
    let listens_there: Vec<bool> = nodes().iter().filter_map(|(node, resp)| listens_at(&short.join(node), cluster, resp)).collect();
    // Addresses can be changed in a file. They tell two files of one cluster's name apart, and are not asked where there is one.
    let is_theirs = listens_there.contains(&true) || !listens_there.is_empty() && !has_other(file, &short, cluster, cluster_of);
    if is_theirs { short } else { own }
}

/// Whether the node in `folder` listens at `resp`, if it is one of `cluster`.
fn listens_at(folder: &Path, cluster: &str, resp: &str) -> Option<bool> {
    let written: toml::Table = std::fs::read_to_string(folder.join("node.toml")).ok()?.parse().ok()?;
    let is_of_cluster = written.get("cluster").and_then(toml::Value::as_str) == Some(cluster);
    let listens = written.get("listen").and_then(|listen| listen.get("resp")).and_then(toml::Value::as_str);
    is_of_cluster.then_some(listens == Some(resp))
}

/// Whether there is another file of `cluster` whose folder can be `short`.
fn has_other(file: &Path, short: &Path, cluster: &str, cluster_of: impl Fn(&str) -> Option<String>) -> bool {
    let Some(entries) = file.parent().and_then(|beside| std::fs::read_dir(beside).ok()) else { return false };
    let paths = entries.flatten().map(|entry| entry.path()).filter(|path| path != file && path.with_extension("cluster") == short);
    let is_small = |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && found.len() <= LARGEST);
    let mut texts = paths.filter(is_small).filter_map(|path| std::fs::read_to_string(path).ok());
    texts.any(|text| cluster_of(&text).as_deref() == Some(cluster))
}
