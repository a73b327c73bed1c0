/** What operations ask for and return. */

/** A key or a value. */
export type Bytes = string | Buffer;

/** What operations ask for beside. What is not said is the keyspace's own. */
export interface Dial {
  /** `eventual`, `session`, `causal`, `local`, `strong`, or guarantees with `+` between them. */
  readonly level?: string | undefined;
  /** How a read-only transaction finds its snapshot: `auto`, `coordinated`, `predicted`. */
  readonly strategy?: string | undefined;
  /** How stale a read may be, in milliseconds; until it is fresh enough, it waits. */
  readonly freshMs?: number | undefined;
  /** How long an operation may wait at its partition server, in milliseconds. */
  readonly withinMs?: number | undefined;
  /** A service level's name or entries, best first, as in `strong 200ms; causal 1s 20ms; eventual`; `none` is none at all. */
  readonly serviceLevel?: string | undefined;
  /** How many replicas are asked, must answer a read, must have a write; in keyspaces of protocol `quorum`. */
  readonly quorum?: readonly [number, number, number] | undefined;
  /** The checking groups of reads, in keyspaces of protocol `adaptive`. */
  readonly groups?: readonly number[] | undefined;
}

/** A version's name. */
export class Version {
  constructor(
    /** When it was written, on its writer's clock: milliseconds since the Unix epoch. */
    readonly millis: number,
    /** The counter within the millisecond. */
    readonly counter: number,
    /** The data center where it was written. */
    readonly origin: string,
  ) {}

  /** `millis.counter@origin` */
  toString(): string {
    return `${this.millis}.${this.counter}@${this.origin}`;
  }

  /** What `toString` says. */
  static parse(text: string): Version {
    const [, millis, counter, origin] = /^(\d+)\.(\d+)@(.*)$/s.exec(text) ?? [];
    if (origin === undefined) throw new TypeError(`${JSON.stringify(text)} is no version`);
    return new Version(Number(millis), Number(counter), origin);
  }
}

/** What an answer satisfies of its service level. */
export interface Achieved {
  /** The first entry that it satisfies, counted from 1. */
  readonly entry: number;
  /** The microseconds that it took at the node that was asked. The way there and back is not in it. */
  readonly usedUs: number;
  /** The data center that has answered a read; absent after a write. */
  readonly answeredIn: string | undefined;
  /** In how many data centers a write was when it was answered; absent after a read. */
  readonly dataCenters: number | undefined;
}

/** How good an answer was. */
export interface Quality {
  /** The level that was achieved; absent after a write. */
  readonly level: string | undefined;
  /** Every write of another data center that is older than this many milliseconds is reflected; absent when no bound is known. */
  readonly stalenessMs: number | undefined;
  /** The version that was read or written, if there is one. */
  readonly version: Version | undefined;
  /** Under a service level. */
  readonly achieved: Achieved | undefined;
}

/** What a read returned. */
export interface Read extends Quality {
  /** The value; null when the key is absent, deleted or expired. */
  readonly value: Buffer | null;
}

/** What a read-only transaction returned. */
export interface Many extends Quality {
  /** One value for each key, in the order of the keys. */
  readonly values: readonly (Buffer | null)[];
}

/** How a write is to be made. */
export interface PutOptions {
  /** For how long the value stays, in milliseconds. */
  readonly expiresAfterMs?: number;
}

/** What a key must be for `putIf` to write it: without a value, with one, with this one. */
export type Condition = "absent" | "present" | { readonly value: Bytes };

/** Values that stand side by side. */
export interface Siblings {
  /** Newest first; none if the key is absent. */
  readonly values: readonly Buffer[];
  /** Which versions were seen; `replace` takes it. */
  readonly context: string;
}

/** Where an update of a counter gets the rights that it needs: in the data center that is asked, or from others too. */
export type Scope = "local" | "global";

/** A counter to be made. Numbers are exact up to 2^53. */
export interface NewCounter {
  /** It is never below this. */
  readonly lower?: number;
  /** It is never above this. */
  readonly upper?: number;
  /** Its value at first; 0 if it is not said. */
  readonly initial?: number;
  /** Each data center's weight in the placement of its rights; none is evenly. */
  readonly placement?: readonly number[];
}

/** What one data center may do to a counter. */
export interface Rights {
  /** The data center's name. */
  readonly dataCenter: string;
  /** By how much it may decrement; absent without a lower bound. */
  readonly down: number | undefined;
  /** By how much it may increment; absent without an upper bound. */
  readonly up: number | undefined;
  /** `member`, `reclaiming`, or `reclaimed by NAME`. */
  readonly standing: string;
}

/** A counter, as known in one data center. */
export interface CounterView {
  readonly value: number;
  readonly lower: number | undefined;
  readonly upper: number | undefined;
  readonly rights: readonly Rights[];
  readonly level: string | undefined;
  readonly stalenessMs: number | undefined;
}

/** How long a client waits, how often it tries, and how many connections it has. Times in milliseconds. */
export interface Options {
  /** How long an operation may go on beginning new tries. Default 5000. */
  readonly deadlineMs?: number;
  /** How long a reply may take, also to what is said first on a new connection, beside what `WAIT` asks the server to wait; then its connection is closed. Default 10000. */
  readonly replyTimeoutMs?: number;
  /** How often a read is sent again when it fails for a passing reason, and an update of counters also where the first try may have been made: it has a name. Other writes are never sent again. Default 3. */
  readonly readRetries?: number;
  /** The first pause between two tries; each further one is twice as long. Default 20. */
  readonly retryPauseMs?: number;
  /** For how long a region that could not be reached is passed over. Default 5000. */
  readonly returnAfterMs?: number;
  /** After what time a subscription to violations takes the connection for lost when it hears nothing, not even an answer to its question whether somebody is there. Default 10000. */
  readonly silenceAfterMs?: number;
  /** Connections to each region, at most. Default 50. */
  readonly poolSize?: number;
}
