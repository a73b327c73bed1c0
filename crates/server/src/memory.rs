//! How much memory the process may use, and who may use it.
//!
//! One budget for the process: `limits.memory_bytes`, or three quarters of what the machine or the process's control group has. Three quarters of it are for data; requests that
//! are arriving have an eighth. What the process really has, but for pages of files, which the system takes back by itself, is looked at ten times a second: near the budget,
//! reading from other nodes slows down; above it, stores on disk keep less and less in memory, writes that grow are refused, and requests that are large wait.

use rheostat_storage::DiskOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// What the machine, or the control group that limits the process, has, in bytes; `None` if the system does not say.
pub fn available() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(|text| kilobytes(text, "MemTotal:"));
    let group = std::fs::read_to_string("/proc/self/cgroup").ok().map_or_else(Vec::new, |text| group_files(&text));
    let group = group.iter().filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
    group.chain(machine).min()
}

/// Where a control group of version 2 says what it may have: above the first the system ends a process, above the second it slows all of them down until they stand still.
const VERSION_2: &[&str] = &["memory.max", "memory.high"];
const VERSION_1: &[&str] = &["memory.limit_in_bytes"];

/// The files that can hold a limit of the control group that /proc/self/cgroup names, and of those above it: version 2 and 1.
fn group_files(text: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, names) = match controllers {
            "" => ("/sys/fs/cgroup", VERSION_2),
            _ if controllers.split(',').any(|controller| controller == "memory") => ("/sys/fs/cgroup/memory", VERSION_1),
            _ => continue,
        };
        // Inside a container the group's path may be that of outside: then the root is the group.
        let mut path = path.trim_end_matches('/');
        loop {
            files.extend(names.iter().map(|name| format!("{root}{path}/{name}")));
            match path.rsplit_once('/') {
                Some((above, _)) => path = above,
                None => break,
            }
        }
    }
    files
}

/// In a smaller budget the process itself weighs more than what it keeps for others: what it has is not compared with it, only data is.
const LEAST_COMPARED: u64 = 32 << 20;

/// What the process has in memory, in bytes; 0 if the system does not say.
pub fn resident() -> u64 {
    std::fs::read_to_string("/proc/self/status").ok().as_deref().and_then(|text| kilobytes(text, "VmRSS:")).unwrap_or(0)
}

/// What the process has in memory of its own, in bytes: what nobody can take back but the process. 0 if the system does not say.
fn own() -> u64 {
    std::fs::read_to_string("/proc/self/status").ok().as_deref().and_then(own_of).unwrap_or(0)
}

fn own_of(status: &str) -> Option<u64> {
    Some(kilobytes(status, "RssAnon:")? + kilobytes(status, "RssShmem:")?)
}

/// What follows `name` in a file of the system, in bytes.
pub(crate) fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least that stores on disk may use of their memory, in parts of [`DiskOptions::WHOLE`].
const LEAST_SHARE: u32 = DiskOptions::WHOLE / 16;

/// Of what is left below seven eighths of the budget, other nodes may fill one part in so many from one look to the next: what is read is held twice for a while.
const BETWEEN_LOOKS: u64 = 16;

/// After each read of another node: when memory is used up nearly, when it is, and when more than a sixteenth beyond is used.
const SLOWER: [Duration; 3] = [Duration::from_millis(5), Duration::from_millis(50), Duration::from_millis(500)];

/// Of the room for data, one part in so many may be used whatever the process has.
const LEAST_DATA: u64 = 8;

/// How near the process is to its budget.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Pressure {
    /// There is room.
    None,
    /// More than seven eighths are used: what other nodes send is read slowly.
    High,
    /// The budget is used up: what grows is refused.
    Full,
}

/// See the module.
pub(crate) struct Memory {
    budget: u64,
    pressure: AtomicUsize,
    /// More than a sixteenth more is used than may be.
    beyond: AtomicBool,
    /// Bytes that may be read of other nodes as fast as they come, until the next look.
    unhurried: AtomicU64,
    /// Bytes of requests that are arriving: what was announced of those that are large.
    arriving: Arc<AtomicUsize>,
    /// Bytes of transactions that are kept until EXEC, of those that are large.
    queued: Arc<AtomicUsize>,
    /// What each of the two may be.
    max_arriving: usize,
    /// What stores on disk may use of the memory that is theirs.
    share: Arc<AtomicU32>,
}

impl Memory {
    /// A budget of `configured` bytes; 0: of what there is. `largest` is what one request may have.
    pub(crate) fn new(configured: u64, largest: usize) -> Memory {
        let budget = match configured {
            0 => available().map_or(u64::MAX, |available| available / 4 * 3),
            bytes => bytes,
        };
        // One of the largest must always fit.
        let max_arriving = usize::try_from(budget / 8).unwrap_or(usize::MAX).max(largest.saturating_add(largest / 8));
        Memory {
            budget,
            pressure: AtomicUsize::new(0),
            beyond: AtomicBool::new(false),
            unhurried: AtomicU64::new(u64::MAX),
            arriving: Arc::default(),
            queued: Arc::default(),
            max_arriving,
            share: Arc::new(AtomicU32::new(DiskOptions::WHOLE)),
        }
    }

    /// Bytes that the process may use.
    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes that data may use.
    pub(crate) fn for_data(&self) -> u64 {
        self.budget / 4 * 3
    }

    /// Whether writes that grow are refused where data use `bytes`: there is no more room for data, or the process has used up everything and there are data whose place could be given to others. Else
    /// the place is the allocator's, which has not given it back to the system, and a write takes some of it.
    pub(crate) fn is_full(&self, bytes: u64) -> bool {
        bytes > self.for_data() || self.pressure() == Pressure::Full && bytes > self.for_data() / LEAST_DATA
    }

    /// Looks at what the process uses.
    pub(crate) fn look(&self) {
        self.compare(own());
    }

    fn compare(&self, own: u64) {
        let pressure = match self.budget {
            budget if budget < LEAST_COMPARED => 0,
            budget if own >= budget => 2,
            budget => usize::from(own >= budget / 8 * 7),
        };
        self.pressure.store(pressure, Ordering::Relaxed);
        self.beyond.store(pressure == 2 && own >= self.budget / 16 * 17, Ordering::Relaxed);
        // Ten looks a second would not see what comes between two of them: a tenth of a second of a fast network is more than a small node has.
        let unhurried = if self.budget < LEAST_COMPARED { u64::MAX } else { (self.budget / 8 * 7).saturating_sub(own) / BETWEEN_LOOKS };
        self.unhurried.store(unhurried, Ordering::Relaxed);
        let share = self.share.load(Ordering::Relaxed);
        let share = match pressure {
            0 => (share + 1).min(DiskOptions::WHOLE),
            1 => share,
            _ => (share - share.div_ceil(8)).max(LEAST_SHARE),
        };
        self.share.store(share, Ordering::Relaxed);
    }

    /// How much of their memory stores on disk may use at this moment ([`DiskOptions::memory_share`]): less and less while the budget is used up, and slowly more when there is room again.
    pub(crate) fn share(&self) -> Arc<AtomicU32> {
        self.share.clone()
    }

    /// As of the last look.
    pub(crate) fn pressure(&self) -> Pressure {
        match self.pressure.load(Ordering::Relaxed) {
            0 => Pressure::None,
            1 => Pressure::High,
            _ => Pressure::Full,
        }
    }

    /// How long whoever has read `bytes` of another node is to wait before it reads on. Never for good: heartbeats are among what it reads.
    pub(crate) fn slows_down(&self, bytes: usize) -> Option<Duration> {
        match self.pressure() {
            Pressure::Full if self.beyond.load(Ordering::Relaxed) => Some(SLOWER[2]),
            Pressure::Full => Some(SLOWER[1]),
            Pressure::High => Some(SLOWER[0]),
            Pressure::None => {
                let take = |left: u64| if left == u64::MAX { Some(left) } else { left.checked_sub(bytes as u64) };
                self.unhurried.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err().then_some(SLOWER[0])
            }
        }
    }

    /// Room for a request of `bytes`; `None` while there is none.
    pub(crate) fn take_arriving(&self, bytes: usize) -> Option<Arriving> {
        self.take(&self.arriving, bytes)
    }

    /// Room for a transaction of `bytes` that is kept until EXEC; `None` while there is none. It is not taken from what arrives: the largest fits in both.
    pub(crate) fn take_queued(&self, bytes: usize) -> Option<Arriving> {
        self.take(&self.queued, bytes)
    }

    fn take(&self, taken: &Arc<AtomicUsize>, bytes: usize) -> Option<Arriving> {
        let most = if self.pressure() == Pressure::Full { bytes.min(self.max_arriving) } else { self.max_arriving };
        let fits = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= most);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Arriving { taken: taken.clone(), bytes })
    }
}

/// Room for a request that is arriving or kept; given back when this is dropped.
pub(crate) struct Arriving {
    taken: Arc<AtomicUsize>,
    pub(crate) bytes: usize,
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        assert_eq!(kilobytes("MemFree: 5 kB\nMemTotal:       24000000 kB\n", "MemTotal:"), Some(24_000_000 * 1024));
        assert_eq!(kilobytes("MemTotal: many", "MemTotal:"), None);
        let both = ["/a/b", "/a", ""].map(|path| ["max", "high"].map(|name| format!("/sys/fs/cgroup{path}/memory.{name}"))).concat();
        assert_eq!(group_files("0::/a/b\n"), both, "the lower of the two counts");
        assert_eq!(group_files("7:cpu,cpuacct:/x\n4:memory:/\nnonsense\n"), ["/sys/fs/cgroup/memory/memory.limit_in_bytes"]);
        assert_eq!(own_of("VmRSS:\t 9 kB\nRssAnon:\t 3 kB\nRssFile:\t 5 kB\nRssShmem:\t 1 kB\n"), Some(4096));
        if cfg!(target_os = "linux") {
            assert!(available().is_some() && own() > 0 && own() < resident(), "the program's pages are a file's");
        }
    }

    #[test]
    fn requests_that_arrive_have_a_share_and_the_largest_always_fits_alone() {
        let memory = Arc::new(Memory::new(800, 50));
        assert_eq!((memory.budget(), memory.for_data()), (800, 600));
        let first = memory.take_arriving(60).unwrap();
        assert!(memory.take_arriving(41).is_none());
        let second = memory.take_arriving(40).unwrap();
        drop(first);
        assert!(memory.take_arriving(61).is_none() && memory.take_arriving(60).is_some());
        drop(second);
        assert!(Arc::new(Memory::new(8, 100)).take_arriving(100).is_some());
    }

    #[test]
    fn while_memory_is_full_stores_keep_less_and_then_slowly_more_again() {
        let memory = Memory::new(512 << 20, 1000);
        let share = memory.share();
        let after = |own, looks: usize| {
            (0..looks).for_each(|_| memory.compare(own));
            share.load(Ordering::Relaxed)
        };
        assert_eq!(after(447 << 20, 1), DiskOptions::WHOLE);
        assert_eq!(after(512 << 20, 1), DiskOptions::WHOLE / 8 * 7);
        assert_eq!(after(448 << 20, 9), DiskOptions::WHOLE / 8 * 7, "near the budget it stays as it is");
        assert_eq!(after(512 << 20, 100), LEAST_SHARE);
        assert_eq!(after(447 << 20, 10), LEAST_SHARE + 10);
        assert_eq!(after(0, 1000), DiskOptions::WHOLE);
    }

    #[test]
    fn other_nodes_are_read_as_fast_as_there_is_room_until_the_next_look() {
        let memory = Memory::new(512 << 20, 1000);
        assert_eq!(memory.slows_down(usize::MAX), None, "before the first look");
        memory.compare(128 << 20);
        let room = (448 - 128) << 16;
        assert_eq!(memory.slows_down(room), None);
        assert_eq!(memory.slows_down(1), Some(SLOWER[0]));
        memory.compare(128 << 20);
        assert_eq!(memory.slows_down(room + 1), Some(SLOWER[0]));
        assert_eq!(memory.slows_down(1), None, "what was too much has taken nothing");
        memory.compare(448 << 20);
        assert_eq!(memory.slows_down(1), Some(SLOWER[0]));
        memory.compare(512 << 20);
        assert_eq!(memory.slows_down(1), Some(SLOWER[1]));
        memory.compare(544 << 20);
        assert_eq!(memory.slows_down(1), Some(SLOWER[2]));
        let unlimited = Memory::new(u64::MAX, 1000);
        unlimited.look();
        assert_eq!(unlimited.slows_down(usize::MAX / 32), None);
    }

    #[test]
    fn writes_go_on_where_nothing_can_be_let_go_of() {
        let memory = Memory::new(512 << 20, 1000);
        let full = |memory: &Memory| [0, 48 << 20, (48 << 20) + 1, 384 << 20, (384 << 20) + 1].map(|bytes| memory.is_full(bytes));
        memory.compare(511 << 20);
        assert_eq!(full(&memory), [false, false, false, false, true]);
        memory.compare(512 << 20);
        assert_eq!(full(&memory), [false, false, true, true, true]);
    }

    #[test]
    fn when_memory_is_full_large_requests_come_one_at_a_time() {
        let memory = Arc::new(Memory::new(512 << 20, 1000));
        for (own, pressure) in [(447 << 20, Pressure::None), (448 << 20, Pressure::High), (512 << 20, Pressure::Full)] {
            memory.compare(own);
            assert_eq!(memory.pressure(), pressure);
        }
        let one = memory.take_arriving(500).unwrap();
        assert!(memory.take_arriving(500).is_none());
        drop(one);
        assert!(memory.take_arriving(500).is_some());
        let roomy = Memory::new(u64::MAX, 1000);
        roomy.look();
        assert_eq!(roomy.pressure(), Pressure::None);
        for (budget, pressure) in [(32 << 20, Pressure::Full), ((32 << 20) - 1, Pressure::None)] {
            let small = Memory::new(budget, 1000);
            small.compare(32 << 20);
            assert_eq!(small.pressure(), pressure);
        }
    }
}
