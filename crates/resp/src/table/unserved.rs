//! Commands of Redis that are not served, and why. Each is answered with an error that says so, never with something weaker.

use std::fmt;

/// Why a command is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It writes several keys, under a condition on each.
    SeveralConditions,
    /// Its new value is computed from the old one.
    ReadModifyWrite,
    /// It reads one key and writes another as one step.
    SeveralKeys,
    /// It changes a whole keyspace at once.
    WholeKeyspace,
    /// Values are byte strings; says what they are not.
    DataType(&'static str),
    /// There are no channels.
    Messages,
    /// It makes the server remember what clients cache.
    Tracking,
    /// It runs code in the server.
    Scripts,
    /// Replication and placement are the configuration's.
    Replication,
    /// It operates a Redis server.
    Administration,
    /// Nothing forbids it, but it is not there; says what to use.
    Instead(&'static str),
}

impl fmt::Display for Reason {
    /// A clause that follows "is not served: ".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::SeveralConditions => {
                "it writes several keys under a condition on each, and what a keyspace of protocol `strong` decides is one key; use SET with NX, key by key"
            }
            Reason::ReadModifyWrite => {
                "it computes the new value from the old one, and data centers that did so at the same time would lose each other's changes; \
                 keyspaces do not have the coordination that prevents this"
            }
            Reason::SeveralKeys => {
                "it reads one key and writes another as one step, and partitions and data centers would have to coordinate it; \
                 keyspaces do not have this coordination"
            }
            Reason::WholeKeyspace => {
                "it changes a whole keyspace at one moment, and all partitions and data centers would have to agree on that moment; \
                 keyspaces do not have this coordination"
            }
            Reason::DataType(what) => return write!(f, "values are byte strings, there are no {what}"),
            Reason::Messages => "there are no channels to publish or subscribe to",
            Reason::Tracking => "the server does not keep track of what clients cache",
            Reason::Scripts => "the server runs no scripts, functions or modules",
            Reason::Replication => "replication and placement follow the configuration and are not changed by commands",
            Reason::Administration => "the server is operated by its configuration, its admin port and `rheostat ctl`",
            Reason::Instead(what) => return write!(f, "use {what}"),
        })
    }
}

/// Names that one reason stands for.
#[derive(Debug)]
pub struct Unserved {
    /// The reason.
    pub reason: Reason,
    /// Commands, and subcommands (`container|subcommand`) of containers that are served.
    pub names: &'static [&'static str],
}

const fn because(reason: Reason, names: &'static [&'static str]) -> Unserved {
    Unserved { reason, names }
}

/// What is not served.
pub const UNSERVED: &[Unserved] = &[
    because(Reason::SeveralConditions, &["msetnx"]),
    because(Reason::ReadModifyWrite, crate::command::strings::UNSERVED),
    because(Reason::SeveralKeys, &["bitop", "copy", "migrate", "move", "rename", "renamenx"]),
    because(Reason::Scripts, &["eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro", "function", "module", "script"]),
    because(Reason::WholeKeyspace, &["flushall", "flushdb", "swapdb"]),
    because(
        Reason::DataType("lists"),
        &[
            "blmove",
            "blmpop",
            "blpop",
            "brpop",
            "brpoplpush",
            "lindex",
            "linsert",
            "llen",
            "lmove",
            "lmpop",
            "lpop",
            "lpos",
            "lpush",
            "lpushx",
            "lrange",
            "lrem",
            "lset",
            "ltrim",
            "rpop",
            "rpoplpush",
            "rpush",
            "rpushx",
            "sort",
            "sort_ro",
        ],
    ),
    because(
        Reason::DataType("sets"),
        &[
            "sadd",
            "scard",
            "sdiff",
            "sdiffstore",
            "sinter",
            "sintercard",
            "sinterstore",
            "sismember",
            "smembers",
            "smismember",
            "smove",
            "spop",
            "srandmember",
            "srem",
            "sscan",
            "sunion",
            "sunionstore",
        ],
    ),
    because(
        Reason::DataType("sorted sets"),
        &[
            "bzmpop",
            "bzpopmax",
            "bzpopmin",
            "zadd",
            "zcard",
            "zcount",
            "zdiff",
            "zdiffstore",
            "zincrby",
            "zinter",
            "zintercard",
            "zinterstore",
            "zlexcount",
            "zmpop",
            "zmscore",
            "zpopmax",
            "zpopmin",
            "zrandmember",
            "zrange",
            "zrangebylex",
            "zrangebyscore",
            "zrangestore",
            "zrank",
            "zrem",
            "zremrangebylex",
            "zremrangebyrank",
            "zremrangebyscore",
            "zrevrange",
            "zrevrangebylex",
            "zrevrangebyscore",
            "zrevrank",
            "zscan",
            "zscore",
            "zunion",
            "zunionstore",
        ],
    ),
    because(
        Reason::DataType("hashes"),
        &[
            "hdel",
            "hexists",
            "hexpire",
            "hexpireat",
            "hexpiretime",
            "hget",
            "hgetall",
            "hgetdel",
            "hgetex",
            "hincrby",
            "hincrbyfloat",
            "hkeys",
            "hlen",
            "hmget",
            "hmset",
            "hpersist",
            "hpexpire",
            "hpexpireat",
            "hpexpiretime",
            "hpttl",
            "hrandfield",
            "hscan",
            "hset",
            "hsetex",
            "hsetnx",
            "hstrlen",
            "httl",
            "hvals",
        ],
    ),
    because(
        Reason::DataType("streams"),
        &[
            "xack",
            "xadd",
            "xautoclaim",
            "xclaim",
            "xdel",
            "xgroup",
            "xinfo",
            "xlen",
            "xpending",
            "xrange",
            "xread",
            "xreadgroup",
            "xrevrange",
            "xsetid",
            "xtrim",
        ],
    ),
    because(
        Reason::DataType("geospatial indexes"),
        &[
            "geoadd",
            "geodist",
            "geohash",
            "geopos",
            "georadius",
            "georadius_ro",
            "georadiusbymember",
            "georadiusbymember_ro",
            "geosearch",
            "geosearchstore",
        ],
    ),
    because(Reason::DataType("HyperLogLogs"), &["pfadd", "pfcount", "pfdebug", "pfmerge", "pfselftest"]),
    because(
        Reason::Messages,
        &["psubscribe", "publish", "pubsub", "punsubscribe", "spublish", "ssubscribe", "subscribe", "sunsubscribe", "unsubscribe"],
    ),
    because(Reason::Tracking, &["client|caching", "client|getredir", "client|tracking", "client|trackinginfo"]),
    because(
        Reason::Replication,
        &[
            "asking",
            "failover",
            "psync",
            "replconf",
            "replicaof",
            "restore-asking",
            "role",
            "slaveof",
            "sync",
            "cluster|addslots",
            "cluster|addslotsrange",
            "cluster|bumpepoch",
            "cluster|count-failure-reports",
            "cluster|delslots",
            "cluster|delslotsrange",
            "cluster|failover",
            "cluster|flushslots",
            "cluster|forget",
            "cluster|links",
            "cluster|meet",
            "cluster|replicas",
            "cluster|replicate",
            "cluster|reset",
            "cluster|saveconfig",
            "cluster|set-config-epoch",
            "cluster|setslot",
            "cluster|slaves",
        ],
    ),
    because(
        Reason::Administration,
        &[
            "bgrewriteaof",
            "bgsave",
            "debug",
            "lastsave",
            "latency",
            "lolwut",
            "monitor",
            "object",
            "save",
            "shutdown",
            "memory|doctor",
            "memory|malloc-stats",
            "memory|purge",
            "memory|stats",
            "acl|deluser",
            "acl|dryrun",
            "acl|genpass",
            "acl|load",
            "acl|log",
            "acl|save",
            "acl|setuser",
            "client|kill",
            "client|pause",
            "client|reply",
            "client|unblock",
            "client|unpause",
            "config|resetstat",
            "config|rewrite",
            "config|set",
        ],
    ),
    because(Reason::Instead("SCAN, which does not hold up other requests"), &["keys", "randomkey", "cluster|getkeysinslot"]),
    because(
        Reason::Instead("GET, and look at the value in the client"),
        &["bitcount", "bitfield_ro", "bitpos", "getbit", "getrange", "lcs", "substr"],
    ),
    because(Reason::Instead("GET and SET, which carry the whole value"), &["dump", "restore"]),
    because(Reason::Instead("WAIT, which counts data centers that have the writes on disk"), &["waitaof"]),
];
