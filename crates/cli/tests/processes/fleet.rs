//! Cluster files and the shell, as a user runs them: real processes, over a stand-in for `ssh` too, which runs what it is told on this machine.

use rheostat_cluster::ports::Block;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A cluster file and its folder. What runs is ended with it.
struct Fleet {
    folder: tempfile::TempDir,
    ssh: Option<PathBuf>,
    base: u16,
    _ports: Block,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Fleet {
    fn new(body: &str, nodes: u16) -> Fleet {
        let ports = Block::free(10 * nodes).unwrap();
        let fleet = Fleet { folder: tempfile::tempdir().unwrap(), ssh: None, base: ports.first(), _ports: ports };
        fleet.write(body);
        fleet
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("fleet.toml")
    }

    fn write(&self, body: &str) {
        std::fs::write(self.file(), format!("cluster = \"fleet\"\nbase_port = {}\n{body}", self.base)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rheostat"));
        command.args(arguments).current_dir(self.folder.path()).env_remove("RHEOSTAT_LOG").env_remove("RHEOSTAT_ADDRESS");
        if let Some(ssh) = &self.ssh {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let all = std::iter::once(ssh.clone()).chain(std::env::split_paths(&path));
            command.env("PATH", std::env::join_paths(all).unwrap());
        }
        command
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        self.command(&[&["ctl", "cluster", arguments[0], "fleet.toml"], &arguments[1..]].concat()).output().unwrap()
    }

    #[track_caller]
    fn well(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout) + &text(&output.stderr)
    }

    #[track_caller]
    fn shell(&self, node: u16, script: &str) -> Output {
        let address = format!("127.0.0.1:{}", self.base + 10 * node + 1);
        let mut child =
            self.command(&["ctl", "shell", &address]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Puts a stand-in for `ssh` in front of the path: it notes its options and runs the command with this machine's shell.
    fn with_ssh(&mut self) {
        let bin = self.folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let program = env!("CARGO_BIN_EXE_rheostat");
        let script = format!(
            "#!/bin/sh\nfor word; do echo \"$word\" >> '{0}/ssh.txt'; last=$word; done\nPATH='{1}':$PATH\nexport PATH\ncd '{0}' && exec sh -c \"$last\"\n",
            self.folder.path().display(),
            Path::new(program).parent().unwrap().display()
        );
        let path = bin.join("ssh");
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.ssh = Some(bin);
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.ctl(&["down", "--kill"]);
    }
}

const TWO: &str = "partitions = 2\n[[data_center]]\nname = \"here\"\nnodes = 2\n[[data_center]]\nname = \"there\"\n\
                   [[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\n[[keyspace]]\nname = \"strong\"\nprotocol = \"strong\"\n[[keyspace]]\nname = \"agreed\"\nprotocol = \"staged\"\n\
                   [emulation]\nround_trip_ms = 20.0\nclock = [{ node = \"here-1\", offset_ms = 5 }]\nslow = [{ data_center = \"here\", partition = 1, ms = 10.0 }]\n";

/// A data center in memory begins empty, and what it wrote is in the others: timestamps say that all is well, the content says what it lacks.
#[test]
fn convergence_says_which_keys_a_data_center_has_lost_and_repairs_them() {
    let body = "folder = \"data\"\n[[data_center]]\nname = \"here\"\n[[data_center]]\nname = \"there\"\n\
                [[keyspace]]\nname = \"posts\"\nprotocol = \"causal\"\ndurability = \"memory\"\n\
                [[keyspace]]\nname = \"carts\"\nprotocol = \"quorum\"\ndurability = \"memory\"\n";
    let fleet = Fleet::new(body, 2);
    fleet.well(&["up"]);
    let convergence = |arguments: &[&str]| {
        let address = format!("127.0.0.1:{}", fleet.base + 1);
        let output = fleet.command(&[&["ctl", "-a", &address, "convergence"], arguments].concat()).output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let put = |node: u16| fleet.shell(node, "put mine 1\nput yours 2\ndel yours\nkeyspace carts\nput cart 3\n");
    assert!(put(0).status.success() && put(1).status.success());
    // A counter in a keyspace whose values stand side by side.
    let mut plain = std::net::TcpStream::connect(("127.0.0.1", fleet.base)).unwrap();
    std::io::Write::write_all(&mut plain, b"SELECT 1\r\nINCR sold\r\n").unwrap();
    let mut said = [0; 9];
    std::io::Read::read_exact(&mut plain, &mut said).unwrap();
    assert_eq!(text(&said), "+OK\r\n:1\r\n");
    let written = fleet.shell(0, "put lost 4\nkeyspace carts\nput basket 5\n");
    assert!(written.status.success(), "{}", text(&written.stderr));
    let (code, said) = convergence(&["--wait", "30"]);
    assert!(code == Some(0) && said.contains("the content is the same in every data center"), "{said}");
    let pid = std::fs::read_to_string(fleet.folder.path().join("data/here-1/pid")).unwrap();
    let pid = pid.split_whitespace().next().unwrap();
    let kill = |signal: &str| Command::new("kill").args([signal, pid]).stderr(Stdio::null()).status().unwrap().success();
    assert!(kill("-TERM"));
    while kill("-0") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    fleet.well(&["up"]);
    let (code, said) = convergence(&["--wait", "30", "--links"]);
    assert!(code == Some(0), "{said}");
    let (code, said) = convergence(&["--wait", "2"]);
    assert_eq!(code, Some(1), "{said}");
    for key in ["lost", "basket"] {
        let row = said.lines().find(|line| line.contains(key)).unwrap_or_else(|| panic!("{key}: {said}"));
        assert!(row.trim_end().ends_with("here") && row.contains("@here"), "{said}");
    }
    let (code, said) = convergence(&["--wait", "30", "--repair"]);
    assert!(code == Some(0) && said.contains("the content is the same in every data center"), "{said}");
    let read = fleet.shell(0, "get lost\nkeyspace carts\nget basket\n");
    assert_eq!(text(&read.stdout), "4\n5\n", "{}", text(&read.stderr));
    let (code, said) = convergence(&["--wait", "30"]);
    assert!(code == Some(0), "{said}");
}

#[test]
fn a_fleet_comes_up_stays_and_goes_down() {
    let fleet = Fleet::new(TWO, 3);
    let status = fleet.ctl(&["status"]);
    assert_eq!(status.status.code(), Some(1));
    assert!(text(&status.stdout).contains("does not run"));

    let up = fleet.well(&["up"]);
    for says in ["here-1: started, process", "there-1: ready", "3 nodes of cluster fleet are ready", &format!("127.0.0.1:{}", fleet.base + 21)] {
        assert!(up.contains(says), "{says:?}: {up}");
    }
    let status = fleet.well(&["status"]);
    assert!(status.contains("UTC") && !status.contains("does not run"), "{status}");
    let again = fleet.well(&["up"]);
    assert!(again.contains("here-2: runs already") && !again.contains("started"), "{again}");

    let written = fleet.shell(0, "put k v1\nkeyspace strong\nput s v2\nmget s nothing\nlevel eventual\nlevel\nsession\nexplain s\n");
    let shown = text(&written.stdout);
    assert!(written.status.success(), "{shown}{}", text(&written.stderr));
    assert!(shown.contains("@here") && shown.contains("s: v2\nnothing: (absent)\neventual\n") && shown.contains("visible: this is read"), "{shown}");
    // The session goes along to the other data center, so the write is there.
    let moved = fleet.shell(0, &format!("put k v3\nconnect 127.0.0.1:{}\nget k\ndetails on\nget k\n", fleet.base + 21));
    let shown = text(&moved.stdout);
    assert!(shown.contains("there-1 in there") && shown.contains("\nv3\n") && shown.contains("v3  [version"), "{shown}{}", text(&moved.stderr));
    let wrong = fleet.shell(0, "get k\nlevel loudest\nget k\n");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).contains("line 2: there is no level `loudest`"), "{}", text(&wrong.stderr));
    assert_eq!(text(&wrong.stdout).lines().count(), 1, "nothing runs after an error");

    let logs = fleet.well(&["logs"]);
    assert!(logs.contains("here-1  | ") && logs.contains("there-1 | ") && logs.contains("serving"), "{logs}");
    assert!(fleet.well(&["logs", "there-1", "-n", "1"]).lines().count() == 1);
    let nobody = fleet.ctl(&["logs", "x"]);
    assert!(text(&nobody.stderr).contains("there is no node x; there are: here-1, here-2, there-1"));

    fleet.write(&TWO.replace("offset_ms = 5", "offset_ms = 6"));
    let changed = fleet.ctl(&["up"]);
    assert!(!changed.status.success() && text(&changed.stderr).contains("runs here with another configuration"), "{}", text(&changed.stderr));

    let down = fleet.well(&["down"]);
    assert_eq!(down.matches(": ended, process").count(), 3, "{down}");
    assert!(fleet.well(&["down"]).contains("there-1: did not run"));
    // The data is there again.
    fleet.well(&["up"]);
    assert!(text(&fleet.shell(0, "get k\n").stdout).contains("v3"));
}

/// The processes of a fleet's nodes, by name; none of one that does not run.
fn processes(fleet: &Fleet) -> std::collections::BTreeMap<String, Option<u64>> {
    let output = fleet.command(&["ctl", "--json", "cluster", "status", "fleet.toml"]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let nodes = status["nodes"].as_array().unwrap().iter();
    nodes.map(|node| (node["node"].as_str().unwrap().to_owned(), node["process"].as_u64())).collect()
}

#[test]
fn nodes_are_restarted_one_after_the_other_and_one_data_center_alone() {
    let fleet = Fleet::new(TWO, 3);
    fleet.well(&["up"]);
    assert!(fleet.shell(0, "put k v\n").status.success());
    let before = processes(&fleet);
    let changed = |now: &std::collections::BTreeMap<String, Option<u64>>| -> Vec<&str> {
        ["here-1", "here-2", "there-1"].into_iter().filter(|name| now[*name] != before[*name]).collect()
    };
    for (arguments, why) in [
        (&["restart", "--dc", "nowhere"][..], "there is no data center nowhere; there are: here, there"),
        (&["restart", "--node", "x"], "there is no node x; there are: here-1, here-2, there-1"),
        (&["down", "--dc", "there", "--node", "here-1"], "there is no node here-1 in there; there are: there-1"),
        (&["up", "--dc", ""], "there is no data center ; there are: here, there"),
    ] {
        let refused = fleet.ctl(arguments);
        assert!(!refused.status.success() && text(&refused.stderr).contains(why), "{arguments:?}: {}", text(&refused.stderr));
    }
    let dry = fleet.well(&["restart", "--dc", "here", "--dry-run"]);
    assert_eq!((dry.matches("kill -TERM").count(), dry.matches("serve --config").count(), dry.matches("there-1").count()), (2, 2, 0), "{dry}");
    assert!(changed(&processes(&fleet)).is_empty(), "nothing of all that has done anything");

    // What the file says now is taken, node by node.
    fleet.write(&TWO.replace("offset_ms = 5", "offset_ms = 6"));
    let told = fleet.well(&["restart", "--dc", "here"]);
    let places: Vec<usize> = [
        "here-1: ended",
        "here-1: started",
        "here-1: ready (1 of 2)",
        "here-2: ended",
        "here-2: started",
        "here-2: ready (2 of 2)",
        "2 nodes of cluster fleet were restarted",
    ]
    .map(|line| told.find(line).unwrap_or_else(|| panic!("{line}: {told}")))
    .to_vec();
    assert!(places[..6].is_sorted(), "{told}");
    let now = processes(&fleet);
    assert_eq!(changed(&now), ["here-1", "here-2"]);
    assert!(fleet.well(&["up"]).matches("runs already").count() == 3, "all run with what the file says");
    assert!(text(&fleet.shell(0, "get k\n").stdout).contains('v'));

    // One data center is taken down and up alone; a node that does not run is started.
    let down = fleet.well(&["down", "--dc", "here"]);
    assert!(down.contains("here-1: ended") && down.contains("here-2: ended") && !down.contains("there-1"), "{down}");
    assert_eq!(processes(&fleet), [("here-1".into(), None), ("here-2".into(), None), ("there-1".into(), before["there-1"])].into());
    let told = fleet.well(&["restart", "--node", "here-2"]);
    assert!(told.contains("here-2: did not run") && told.contains("here-2: ready (1 of 1)"), "{told}");
    let up = fleet.well(&["up", "--dc", "here"]);
    assert!(up.contains("here-1: started") && up.contains("here-2: runs already") && up.contains("2 nodes of cluster fleet are ready"), "{up}");
    assert!(text(&fleet.shell(0, "get k\n").stdout).contains('v'));
}

/// Nodes need nobody's password in clear: consoles ask with what nodes share, and whoever starts a fleet says the password.
#[test]
fn a_cluster_file_may_have_the_digest_of_a_password_only() {
    // Of "abc".
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let fleet = Fleet::new(
        &format!(
            "in_memory = true\n[[data_center]]\nname = \"here\"\n[[data_center]]\nname = \"there\"\n[[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\n[security]\npassword_sha256 = \"{digest}\"\ncluster_password = \"we are one\"\n\
             [[user]]\nname = \"reader\"\npassword_sha256 = \"{digest}\"\nrole = \"read\"\n"
        ),
        2,
    );
    let up =
        |password: &str| fleet.command(&["ctl", "cluster", "up", "fleet.toml", "--wait", "20"]).env("RHEOSTAT_PASSWORD", password).output().unwrap();
    let unsaid = up("");
    assert!(!unsaid.status.success() && text(&unsaid.stderr).contains("say the password in RHEOSTAT_PASSWORD"), "{}", text(&unsaid.stderr));
    assert!(processes(&fleet).values().all(Option::is_none), "nothing was started");
    let said = up("abc");
    assert!(said.status.success(), "{}", text(&said.stderr));
    let status = |password: &str| {
        let address = format!("127.0.0.1:{}", fleet.base + 1);
        fleet.command(&["ctl", "-a", &address, "status"]).env("RHEOSTAT_PASSWORD", password).output().unwrap()
    };
    let well = status("abc");
    assert!(well.status.success() && text(&well.stdout).contains("all is well"), "{}{}", text(&well.stdout), text(&well.stderr));
    assert!(!status(digest).status.success(), "the digest is no password");
    // Who may not hear monitors is told so, once.
    let address = format!("127.0.0.1:{}", fleet.base + 1);
    let watch = ["ctl", "-a", &address, "--user", "reader", "monitor", "watch"];
    let refused = fleet.command(&watch).env("RHEOSTAT_PASSWORD", "abc").output().unwrap();
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{}", text(&refused.stdout));
    assert!(text(&refused.stderr).contains("this user's role does not allow it"), "{}", text(&refused.stderr));
    // A user of the file, at either node.
    for node in 0..2 {
        let mut plain = super::plain::Plain::connect(([127, 0, 0, 1], fleet.base + 10 * node).into()).unwrap();
        assert_eq!(plain.ask(b"AUTH reader abc\r\n"), "+OK");
        assert_eq!(plain.ask(b"EXISTS k\r\n"), ":0");
        let refused = plain.ask(b"SET k v\r\n");
        assert!(refused.starts_with("-NOPERM"), "{refused}");
    }
}

/// One data center after the other, as docs/splitting.md says: until the last one, they refuse each other.
#[test]
fn a_cluster_file_s_partitions_are_split_one_data_center_after_the_other() {
    let body = "[[data_center]]\nname = \"here\"\nnodes = 2\n[[data_center]]\nname = \"there\"\n[[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\n\
                [[keyspace]]\nname = \"agreed\"\nprotocol = \"strong\"\n";
    let fleet = Fleet::new(&format!("partitions = 2\n{body}"), 3);
    fleet.well(&["up"]);
    assert!(fleet.shell(0, "put k v\nkeyspace agreed\nput k w\n").status.success());
    assert!(fleet.well(&["split"]).contains("have 2 partitions"), "there is nothing to be split");
    let before = processes(&fleet);
    for (file, why) in [
        (format!("partitions = 4\n{body}"), "at first: first_partitions = 2"),
        (format!("partitions = 3\nfirst_partitions = 3\n{body}"), "and not merged"),
        (format!("partitions = 4\nfirst_partitions = 4\n{body}"), "here has 2 partitions"),
        (format!("partitions = 256\nfirst_partitions = 2\n{body}"), "at most 128 first"),
        (format!("partitions = 4\nfirst_partitions = 2\n{body}[[keyspace]]\nname = \"moving\"\nprotocol = \"adaptive\"\n"), "keyspace moving"),
    ] {
        fleet.write(&file);
        let output = fleet.ctl(&["split"]);
        assert!(!output.status.success() && text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
    fleet.write(&format!("partitions = 4\nfirst_partitions = 2\n{body}"));
    let said = fleet.well(&["split", "--dry-run"]);
    assert!(said.contains("here: its nodes would be ended") && said.contains("there: "), "{said}");
    assert_eq!(processes(&fleet), before, "nothing was done");
    // It goes on after a first one that was done by hand.
    fleet.well(&["down", "--dc", "here"]);
    fleet.well(&["up", "--dc", "here"]);
    let said = fleet.well(&["split"]);
    assert!(said.contains("there: 2 partitions become 4") && said.contains("1 data centers"), "{said}");
    let found = text(&fleet.shell(2, "get k\nkeyspace agreed\nget k\n").stdout);
    assert!(found.contains('v') && found.contains('w'), "{found}");
    assert!(fleet.well(&["split"]).contains("have 4 partitions"));
}

#[test]
fn a_process_that_ends_is_reported_with_its_last_words() {
    let fleet = Fleet::new(TWO, 3);
    let _taken = TcpListener::bind(("127.0.0.1", fleet.base + 10)).unwrap();
    let up = fleet.ctl(&["up", "--wait", "20"]);
    let why = text(&up.stderr);
    assert!(!up.status.success() && why.contains("node here-2") && why.contains("cannot listen"), "{why}");
}

#[test]
fn errors_name_file_line_and_key() {
    let fleet = Fleet::new("partitions = 0\n", 1);
    let why = text(&fleet.ctl(&["up"]).stderr);
    assert!(why.contains("fleet.toml: data_center: there is none"), "{why}");
    fleet.write(&TWO.replace("causal", "casual"));
    let why = text(&fleet.ctl(&["up"]).stderr);
    assert!(why.contains("fleet.toml, line 11: keyspace[0].protocol"), "{why}");
}

#[test]
fn other_hosts_are_reached_over_ssh() {
    let body = "[[data_center]]\nname = \"here\"\n[[data_center]]\nname = \"there\"\nhost = \"127.0.0.2\"\n\
                [[keyspace]]\nname = \"default\"\nprotocol = \"causal\"\n\
                [host.\"127.0.0.2\"]\nssh = \"me@there\"\nssh_options = [\"Port=2222\"]\nfolder = \"far away; touch oops\"\n";
    let mut fleet = Fleet::new(body, 2);
    fleet.with_ssh();
    let dry = fleet.well(&["up", "--dry-run"]);
    let expected = "ssh -T -o 'BatchMode=yes' -o 'ConnectTimeout=10' -o 'Port=2222' -- me@there";
    assert!(dry.contains(expected) && dry.contains("< there-1.toml") && dry.contains("serve --config"), "{dry}");
    assert!(!fleet.folder.path().join("ssh.txt").exists(), "a dry run runs nothing");

    let up = fleet.well(&["up"]);
    assert!(up.contains("there-1: started") && up.contains(&format!("127.0.0.2:{}", fleet.base + 11)), "{up}");
    let told = std::fs::read_to_string(fleet.folder.path().join("ssh.txt")).unwrap();
    assert!(told.contains("BatchMode=yes\n") && told.contains("--\nme@there\n"), "{told}");
    assert!(fleet.folder.path().join("far away; touch oops/there-1/pid").exists());
    assert!(!fleet.folder.path().join("oops").exists(), "the folder's name is one word");
    let status = fleet.well(&["status"]);
    assert!(status.contains("127.0.0.2") && !status.contains("does not run"), "{status}");
    assert!(fleet.well(&["up"]).contains("there-1: runs already"));
    assert!(fleet.well(&["logs", "there-1"]).contains("serving"));
    let down = fleet.well(&["down"]);
    assert_eq!(down.matches(": ended, process").count(), 2, "{down}");

    // What the other machine says is said here.
    std::fs::write(fleet.ssh.as_ref().unwrap().join("ssh"), "#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n").unwrap();
    let refused = fleet.ctl(&["status"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("me@there: Permission denied"), "{}", text(&refused.stderr));
}

/// Needs root, namespaces and an sshd (its path in `RHEOSTAT_SSHD` where it is not the system's); says so where there is none.
#[test]
fn a_real_sshd_in_a_namespace_of_its_own() {
    let sshd = std::env::var("RHEOSTAT_SSHD").unwrap_or_else(|_| "/usr/sbin/sshd".into());
    let namespaces = Command::new("unshare").args(["-mn", "true"]).output().is_ok_and(|output| output.status.success());
    let keys = Command::new("ssh-keygen").arg("-?").output().is_ok();
    if !(namespaces && keys && Path::new(&sshd).exists()) {
        eprintln!("skipped: no sshd, ssh-keygen or right to make namespaces here (sshd: {sshd})");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/processes/support/over_sshd.sh");
    let program = env!("CARGO_BIN_EXE_rheostat");
    let output = Command::new("unshare").args(["-mn", "sh", script]).arg(folder.path()).args([&sshd, program]).output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    for says in [
        "there-1: started, process",
        "2 nodes of cluster far are ready",
        "over-ssh",
        "serving",
        "there-1: ended, process",
        "Permission denied",
        "exit code 1",
    ] {
        assert!(said.contains(says), "{says:?}: {said}");
    }
    let follower = format!("{}/far away/there-1", folder.path().display());
    let left = Command::new("pgrep").args(["-f", &follower]).output().unwrap();
    assert!(left.stdout.is_empty(), "what followed the log there is still running: {}", text(&left.stdout));
}
