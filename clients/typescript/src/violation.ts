/** Violations that monitors tell, with the evidence. */

import { setTimeout as sleep } from "node:timers/promises";
import { ErrorReply } from "@redis/client";
import type { Client, Region } from "./client.js";
import * as errors from "./errors.js";
import { LONGEST_TIMER_MS, Lost, NoConnection, refusalOf } from "./pool.js";
import { mapOf, numberOf, textOf } from "./session.js";
import { Version } from "./types.js";
import { Wire } from "./wire.js";

/** What is said and not taken yet. */
const WAITING = 1024;
/** Pauses between two rounds through the regions; each is twice as long as the one before. */
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5000;

/** A server's time. */
export interface Moment {
  /** Milliseconds since the Unix epoch. */
  readonly millis: number;
  /** The counter within the millisecond. */
  readonly counter: number;
}

/** One of the states that violate a predicate together. */
export interface Evidence {
  /** The key. */
  readonly key: Buffer;
  /** Its value, or how it begins; null if the key was absent. */
  readonly value: Buffer | null;
  /** The value's version; absent if it was never written. */
  readonly version: Version | undefined;
  /** The data center where it stood. */
  readonly dataCenter: string;
  /** Since when, on that server's clock. */
  readonly from: Moment;
  /** Until when; absent if it stands, as far as is known. */
  readonly until: Moment | undefined;
}

/** A violation of a predicate. What was possible and turns out to be certain is told again, under the same node and number. */
export interface Violation {
  readonly kind: "violation";
  /** The node whose monitor says it. */
  readonly node: string;
  /** Its number there. */
  readonly number: number;
  /** When it was said, in milliseconds since the Unix epoch. */
  readonly atMs: number;
  /** The keyspace. */
  readonly keyspace: string;
  /** The predicate; of a pattern with what stands in its braces, as `name[17,4]`. */
  readonly monitor: string;
  /** Whether there was a moment at which all states stood; otherwise there may have been. */
  readonly certain: boolean;
  /** A moment at which these states did not violate it yet. */
  readonly notBefore: Moment;
  /** The states that violate it together. */
  readonly evidence: readonly Evidence[];
}

/** Violations may have been missed, and why. */
export interface Missed {
  readonly kind: "missed";
  readonly why: string;
}

/** The connection was lost, and why: from now on nobody tells anything, until `Missed` says that somebody does again. */
export interface Silence {
  readonly kind: "silence";
  readonly why: string;
}

/** What a subscription tells. */
export type Said = Violation | Missed | Silence;

function missed(why: string): Missed {
  return { kind: "missed", why };
}

function moment(value: unknown): Moment {
  const [, millis, counter] = /^(\d+)\.(\d+)$/.exec(textOf(value) ?? "") ?? [];
  if (counter === undefined) throw new TypeError(`${String(value)} is no moment`);
  return { millis: Number(millis), counter: Number(counter) };
}

function evidence(reply: unknown): Evidence {
  const one = mapOf(reply);
  const [version, until] = [textOf(one.get("version")), one.get("until")];
  return {
    key: one.get("key") as Buffer,
    value: one.get("value") as Buffer | null,
    version: version === undefined ? undefined : Version.parse(version),
    dataCenter: textOf(one.get("data_center")) ?? "",
    from: moment(one.get("from")),
    until: until === null || until === undefined ? undefined : moment(until),
  };
}

/** What a pushed message says. One that cannot be understood may have been a violation. */
function ofPush(reply: unknown): Said {
  try {
    const said = mapOf(reply);
    const text = (name: string): string => textOf(said.get(name)) ?? "";
    const what = text("what");
    if (what === "gap") return missed(text("why"));
    if (what !== "violated" && what !== "possible") throw new TypeError(JSON.stringify(what));
    return {
      kind: "violation",
      node: text("node"),
      number: numberOf(said.get("number")) ?? 0,
      atMs: numberOf(said.get("at_ms")) ?? 0,
      keyspace: text("keyspace"),
      monitor: text("monitor"),
      certain: what === "violated",
      notBefore: moment(said.get("not_before")),
      evidence: (said.get("evidence") as unknown[]).map(evidence),
    };
  } catch (error) {
    return missed(`a message that this client does not understand: ${String(error)}`);
  }
}

function isPassing(error: unknown): boolean {
  return error instanceof errors.Unreachable || error instanceof errors.Timeout || error instanceof errors.Busy;
}

/**
 * Violations that monitors tell, one after the other, on a connection of its own that the regions' Redis clients have the options for.
 *
 * Another region is asked when the first cannot be reached. What is not taken yet waits, up to 1024 messages; those that are left out then are said as `Missed`.
 */
export class Violations implements AsyncIterable<Said> {
  readonly #client: Client<any>;
  readonly #monitor: string;
  readonly #closing = new AbortController();
  readonly #queue: Said[] = [];
  readonly #waiting: (() => void)[] = [];
  #leftOut = 0;
  #missed = 0;
  #wire: Wire | undefined;
  #failed: unknown;

  private constructor(client: Client<any>, monitor: string) {
    this.#client = client;
    this.#monitor = monitor;
  }

  /**
   * Of the predicate `monitor`, or of all, from now on.
   *
   * Throws `Unauthenticated` if the user may not (it takes the role `operate`), `NotRheostat` or `Refused` if the server knows no monitors or no RESP3, `Busy` if too many listen,
   * `Unreachable` or `Timeout` if no region can be reached.
   */
  static async listen(client: Client<any>, monitor = ""): Promise<Violations> {
    const made = new Violations(client, monitor);
    const region = await made.#subscribe();
    void made.#run(region);
    return made;
  }

  /** How often violations may have been missed so far. */
  get missed(): number {
    return this.#missed;
  }

  /**
   * What is told next; nothing when `timeoutMs` have passed or the subscription is closed.
   *
   * While nobody can be reached the regions are asked again and again. What a server refuses then is thrown as by `listen`, and ends the subscription.
   */
  async next(timeoutMs?: number): Promise<Said | undefined> {
    const until = timeoutMs === undefined ? undefined : performance.now() + timeoutMs;
    for (;;) {
      const said = this.#take();
      if (said) return said;
      if (this.#failed !== undefined) throw this.#failed;
      const left = until === undefined ? undefined : until - performance.now();
      if (this.#closing.signal.aborted || (left !== undefined && left <= 0)) return undefined;
      await new Promise<void>((resolve) => {
        const timer = left === undefined ? undefined : setTimeout(() => wake(), Math.min(LONGEST_TIMER_MS, left));
        const wake = (): void => {
          clearTimeout(timer);
          const place = this.#waiting.indexOf(wake);
          if (place >= 0) this.#waiting.splice(place, 1);
          resolve();
        };
        this.#waiting.push(wake);
      });
    }
  }

  /** Until it is closed; leaving the loop closes it. */
  [Symbol.asyncIterator](): AsyncIterator<Said> {
    return {
      next: async () => {
        const value = await this.next();
        return value === undefined ? { done: true, value: undefined } : { done: false, value };
      },
      return: async () => {
        this.close();
        return { done: true, value: undefined };
      },
    };
  }

  /** Ends the subscription, and the wait of whoever waits for what comes next. */
  close(): void {
    this.#closing.abort();
    this.#wire?.close();
    this.#queue.length = 0;
    this.#leftOut = 0;
    this.#wake();
  }

  #wake(): void {
    for (const waiting of [...this.#waiting]) waiting();
  }

  #excess(): Missed {
    const said = missed(`this subscriber reads too slowly: ${this.#leftOut} events were left out`);
    this.#leftOut = 0;
    return said;
  }

  #take(): Said | undefined {
    const said = this.#queue.shift() ?? (this.#leftOut > 0 ? this.#excess() : undefined);
    if (said?.kind === "missed") this.#missed += 1;
    return said;
  }

  #put(said: Said): void {
    if (this.#closing.signal.aborted) return;
    if (this.#queue.length >= WAITING) {
      this.#leftOut += 1;
      return;
    }
    if (this.#leftOut > 0) this.#queue.push(this.#excess());
    this.#queue.push(said);
    this.#wake();
  }

  /** Says what ends each connection, and subscribes again, until the subscription ends. */
  async #run(first: number): Promise<void> {
    let region = first;
    try {
      while (this.#wire) {
        const lost = await this.#wire.lost;
        if (this.#closing.signal.aborted) return;
        // Its connections stay, and nobody answers: others are asked first.
        if (lost.timedOut) this.#client.avoid(region);
        this.#put({ kind: "silence", why: `${this.#client.regions[region]?.pool.name}: ${lost.message}` });
        for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
          try {
            region = await this.#subscribe();
            break;
          } catch (error) {
            if (!isPassing(error)) throw error;
            // So that not all come back at one moment.
            await sleep(pause * (0.5 + Math.random() / 2), undefined, { signal: this.#closing.signal });
          }
        }
        this.#put(missed("the node that tells could not be reached for a while"));
      }
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      this.#failed = error;
      this.#wake();
    }
  }

  /** Listens at the first region that can be reached and has a place. */
  async #subscribe(): Promise<number> {
    const passed = new Set<number>();
    let last: unknown;
    for (let index = this.#client.choose(passed); index !== undefined; index = this.#client.choose(passed)) {
      const region = this.#client.regions[index]!;
      try {
        await this.#open(region);
        region.avoidedUntil = 0;
        return index;
      } catch (error) {
        this.#closing.signal.throwIfAborted();
        passed.add(index);
        if (error instanceof errors.RheostatError) {
          if (!isPassing(error)) throw error;
          last = error;
          continue;
        }
        this.#client.avoid(index);
        const why = `${region.pool.name}: ${(error as Error).message}`;
        if (error instanceof Lost && error.timedOut) last = new errors.Timeout(why, { cause: error });
        else if (error instanceof Lost || error instanceof NoConnection) last = new errors.Unreachable(why, true, { cause: error });
        else throw error;
      }
    }
    throw last;
  }

  async #open({ pool }: Region): Promise<void> {
    const { silenceAfterMs, replyTimeoutMs } = this.#client.options;
    const words = ["RHEO", "MONITOR", "LISTEN", ...(this.#monitor ? [this.#monitor] : [])];
    try {
      const wire = await Wire.open(pool.given, words, silenceAfterMs, replyTimeoutMs, this.#closing.signal, (message) => {
        if (message.length === 2 && textOf(message[0]) === "monitor") this.#put(ofPush(message[1]));
      });
      if (this.#closing.signal.aborted) wire.close();
      this.#wire = wire;
    } catch (error) {
      if (!(error instanceof ErrorReply)) throw error;
      const made = refusalOf(error);
      const unknown = made.name === "Refused" && /hello|noproto/i.test(error.message);
      throw unknown ? new errors.Refused(`the server does not speak RESP3, in which monitors are heard: ${made.message}`, { cause: error }) : made;
    }
  }
}
