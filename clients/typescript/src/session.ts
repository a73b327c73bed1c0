/** Sessions and their operations. */

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { ErrorReply, RESP_TYPES } from "@redis/client";
import { type Client, withCurrent } from "./client.js";
import { Counter } from "./counter.js";
import * as errors from "./errors.js";
import { lend } from "./lend.js";
import { type Command, isForgotten, Lost, NoConnection, type NodeRedis, orAborted, refusalOf, type Word } from "./pool.js";
import { type Bytes, type Condition, type Dial, type Many, type PutOptions, type Quality, type Read, type Scope, type Siblings, Version } from "./types.js";
import { SESSION_HEADER } from "./web.js";

/** Values as they are, without an encoding. */
const BUFFERS = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } };
const NO_QUALITY: Quality = { level: undefined, stalenessMs: undefined, version: undefined, achieved: undefined };

/** Commands that write nothing; a session sends them along with its token, in one round trip. */
const READS = words("GET MGET STRLEN EXISTS TTL PTTL EXPIRETIME PEXPIRETIME TYPE SCAN DBSIZE TOUCH PING ECHO TIME WAIT COMMAND INFO CLUSTER CLIENT READONLY");
const READS_OF_RHEO = words("EXPLAIN SIBLINGS STATUS");
/** What the connection of a session keeps for itself, and of RHEO likewise. */
const NOT_IN_A_SESSION = words("AUTH HELLO SELECT RESET QUIT MULTI EXEC DISCARD WATCH UNWATCH SUBSCRIBE PSUBSCRIBE MONITOR");
const DIALS = words("LEVEL STRATEGY FRESH WITHIN AT SLA QUORUM GROUPS SCOPE VIEW SESSION RECEIPT MONITOR");

function words(text: string): ReadonlySet<string> {
  return new Set(text.split(" "));
}

function firstTwo(args: readonly Word[]): [string, string] {
  return [String(args[0] ?? "").toUpperCase(), String(args[1] ?? "").toUpperCase()];
}

function isRead(args: readonly Word[]): boolean {
  const [first, second] = firstTwo(args);
  return READS.has(first) || (first === "RHEO" && READS_OF_RHEO.has(second)) || (first === "MEMORY" && second === "USAGE");
}

/** Refuses what would change the connection rather than be part of the session. */
function fits(args: readonly Word[]): void {
  const [first, second] = firstTwo(args);
  if (NOT_IN_A_SESSION.has(first) || (first === "RHEO" && DIALS.has(second)) || (first === "CLIENT" && second === "SETNAME")) {
    throw new errors.Refused(`${first} ${second} is about a connection, and a session has none of its own: use the session's methods`);
  }
}

/** A command of ours. */
export function own(...args: (Word | number)[]): Command {
  return { args: args.map((word) => (typeof word === "number" ? String(word) : word)) };
}

/** A map, as RESP2 or RESP3 has it. */
export function mapOf(reply: unknown): Map<string, unknown> {
  if (reply instanceof Map) return new Map([...reply].map(([name, value]) => [String(name), value]));
  if (!Array.isArray(reply)) return new Map(Object.entries(reply as object));
  const made = new Map<string, unknown>();
  for (let i = 0; i + 1 < reply.length; i += 2) made.set(String(reply[i]), reply[i + 1]);
  return made;
}

export function numberOf(value: unknown): number | undefined {
  return value === null || value === undefined ? undefined : Number(value);
}

export function textOf(value: unknown): string | undefined {
  return value === null || value === undefined ? undefined : String(value);
}

function qualityOf(reply: unknown): Quality {
  const said = mapOf(reply);
  const version = textOf(said.get("version"));
  const entry = numberOf(said.get("entry"));
  return {
    level: textOf(said.get("level")),
    stalenessMs: numberOf(said.get("staleness_ms")),
    version: version === undefined ? undefined : Version.parse(version),
    achieved:
      entry === undefined
        ? undefined
        : {
            entry,
            usedUs: numberOf(said.get("used_us")) ?? 0,
            answeredIn: textOf(said.get("answered_in")),
            dataCenters: numberOf(said.get("data_centers")),
          },
  };
}

/** The commands that make a connection ask for `dial`, and those that take it back. */
function aroundDial(dial: Dial): [Command[], Command[]] {
  const said: [string, string, readonly (string | number)[] | undefined][] = [
    ["LEVEL", "DEFAULT", dial.level === undefined ? undefined : [dial.level]],
    ["STRATEGY", "AUTO", dial.strategy === undefined ? undefined : [dial.strategy]],
    ["FRESH", "NONE", dial.freshMs === undefined ? undefined : [dial.freshMs]],
    ["WITHIN", "NONE", dial.withinMs === undefined ? undefined : [dial.withinMs]],
    ["SLA", "DEFAULT", dial.serviceLevel === undefined ? undefined : [dial.serviceLevel]],
    ["QUORUM", "DEFAULT", dial.quorum],
    ["GROUPS", "AUTO", dial.groups],
  ];
  const asked = said.filter(([, , values]) => values !== undefined);
  return [asked.map(([name, , values]) => own("RHEO", name, ...(values ?? []))), asked.map(([name, usual]) => own("RHEO", name, usual))];
}

/** What the views of one session share. */
export class State {
  token: string;
  quality: Quality = NO_QUALITY;
  #name = randomName();
  #number = 0;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(token: string) {
    this.token = token;
  }

  /** The name of the next update of counters. */
  nextName(): [string, string] {
    this.#number += 1;
    return [this.#name, String(this.#number)];
  }

  /** An update's end is not known: those that follow have another client's name, since only one of a client may be under way. */
  rename(): void {
    this.#name = randomName();
    this.#number = 0;
  }

  /** Runs `body` when all that came before has ended, unless it is given up before that. */
  inTurn<T>(body: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    const mine = orAborted(this.#turn, signal).then(body);
    this.#turn = Promise.allSettled([this.#turn, mine]).then(() => undefined);
    return mine;
  }
}

function randomName(): string {
  return String(randomBytes(8).readBigUInt64LE() >> 1n);
}

/**
 * What one user has seen and written in one keyspace, and the operations on it. One operation goes on at a time: those who share a session wait for each other.
 *
 * An operation that fails or is given up leaves the token as it was: what it may have written is then not part of the session. Operations reject with `RheostatError`.
 */
export class Session<C extends NodeRedis = NodeRedis> {
  /** The keyspace's name or number; nothing is that of the Redis clients. */
  readonly keyspace: string | number | undefined;
  readonly #client: Client<C>;
  readonly #state: State;
  readonly #signal: AbortSignal | undefined;
  #dial: Dial;

  /** Made by `Client.session` and `Client.resume`. */
  constructor(client: Client<C>, keyspace: string | number | undefined, state: State, dial: Dial, signal?: AbortSignal) {
    this.keyspace = keyspace;
    this.#client = client;
    this.#state = state;
    this.#dial = dial;
    this.#signal = signal;
  }

  /** The session's token; empty before its first operation. */
  get token(): string {
    return this.#state.token;
  }

  /** How good the session's last answer was. */
  get quality(): Quality {
    return this.#state.quality;
  }

  /** What operations ask for beside. */
  get dial(): Dial {
    return this.#dial;
  }

  /** Your node-redis client, with commands that belong to this session. */
  get redis(): C {
    return lend(this.#client.given, () => this);
  }

  /** The header for a web request to another service, or for an answer. */
  headers(): Record<string, string> {
    return this.token ? { [SESSION_HEADER]: this.token } : {};
  }

  /** A session that has seen the same, at another client: of other regions, or of these in another order. From now on they are two. */
  at<D extends NodeRedis>(client: Client<D>): Session<D> {
    return new Session(client, this.keyspace, new State(this.token), this.#dial);
  }

  /** This same session, asking for something else: `session.withDial({ level: "eventual" }).get(key)`. What is not said stays. */
  withDial(dial: Dial): Session<C> {
    return new Session(this.#client, this.keyspace, this.#state, { ...this.#dial, ...dial }, this.#signal);
  }

  /** This same session, whose operations are given up when `signal` says so; then they reject with its reason. */
  withSignal(signal: AbortSignal): Session<C> {
    return new Session(this.#client, this.keyspace, this.#state, this.#dial, signal);
  }

  /** Sets what operations ask for beside. */
  setDial(dial: Dial): void {
    this.#dial = dial;
  }

  /** Sets the level that operations ask for; nothing is the keyspace's own. */
  setLevel(level: string | undefined): void {
    this.#dial = { ...this.#dial, level };
  }

  /** Sets the service level that reads are served under: a name, or entries from best to least; `none` is none at all. */
  setServiceLevel(serviceLevel: string | undefined): void {
    this.#dial = { ...this.#dial, serviceLevel };
  }

  /** Runs `body`; within it, commands of `Client.redis` belong to the session. */
  asCurrent<T>(body: () => T): T {
    return withCurrent(this, body);
  }

  /** Sees that the servers take this session's token and what it asks for. */
  async check(): Promise<void> {
    await this.#perform([], false);
  }

  /** Takes in what the session of `token` has seen and written: from now on this session sees at least that. */
  async merge(token: string): Promise<void> {
    if (token) await this.#one(false, own("RHEO", "SESSION", "MERGE", token));
  }

  /** The value of `key`. */
  async get(key: Bytes): Promise<Read> {
    const [value, quality] = await this.#one(false, { ...own("GET", key), options: BUFFERS });
    return { value: value as Buffer | null, ...quality };
  }

  /** Writes `value` to `key`. Never sent twice. */
  async put(key: Bytes, value: Bytes, options: PutOptions = {}): Promise<Version> {
    const [, quality] = await this.#one(true, own("SET", key, value, ...expiry(options)));
    return written(quality);
  }

  /** Writes if the key is as `condition` says, in a keyspace that decides such writes; nothing is returned where it is not. */
  async putIf(key: Bytes, value: Bytes, condition: Condition, options: PutOptions = {}): Promise<Version | undefined> {
    const args: (Word | number)[] =
      typeof condition === "object" ? ["RHEO", "CAS", key, condition.value, value] : ["SET", key, value, condition === "absent" ? "NX" : "XX"];
    const [reply, quality] = await this.#one(true, own(...args, ...expiry(options)));
    // node-redis gives numbers as texts where the application's client asks for that.
    return Number(reply) === 0 ? undefined : written(quality);
  }

  /** Writes several keys of one partition, which appear together in every data center. */
  async putMany(items: Iterable<readonly [Bytes, Bytes]>): Promise<Version> {
    const args = [...items].flat();
    if (args.length === 0) throw new errors.Refused("nothing to write");
    const [, quality] = await this.#one(true, own("MSET", ...args));
    return written(quality);
  }

  /** Deletes `key`; whether it was there. */
  async delete(key: Bytes): Promise<boolean> {
    const [reply] = await this.#one(true, own("DEL", key));
    return Number(reply) === 1;
  }

  /** Values of `keys`, of any partitions, from one snapshot. */
  async readTransaction(keys: Iterable<Bytes>): Promise<Many> {
    const names = [...keys];
    if (names.length === 0) throw new errors.Refused("a transaction of no keys");
    const [values, quality] = await this.#one(false, { ...own("MGET", ...names), options: BUFFERS });
    return { values: values as (Buffer | null)[], ...quality };
  }

  /** Waits until so many other data centers have this session's writes on disk, for at most `timeoutMs`; how many have. */
  async wait(dataCenters: number, timeoutMs: number): Promise<number> {
    const [reply] = await this.#one(false, own("WAIT", dataCenters, Math.max(1, Math.round(timeoutMs))));
    return Number(reply);
  }

  /** All values of `key` that stand side by side; in keyspaces of protocol `quorum`. */
  async siblings(key: Bytes): Promise<Siblings> {
    const [reply] = await this.#one(false, { ...own("RHEO", "SIBLINGS", key), options: BUFFERS });
    const [context, values] = reply as [Buffer, (Buffer | null)[]];
    return { context: context.toString(), values: values.filter((value) => value !== null) };
  }

  /** Writes in the place of the values that `context` says, and of no others; the new context. */
  async replace(key: Bytes, value: Bytes, context: string): Promise<string> {
    const [reply] = await this.#one(true, own("RHEO", "PUT", key, value, "CONTEXT", context));
    return String(reply);
  }

  /** The value of `key`. Where several stand side by side, `resolve` makes one of them, which is written in their place. */
  async resolve(key: Bytes, resolve: (values: readonly Buffer[]) => Bytes): Promise<Buffer | null> {
    const seen = await this.siblings(key);
    if (seen.values.length < 2) return seen.values[0] ?? null;
    const value = Buffer.from(resolve(seen.values) as string);
    await this.replace(key, value, seen.context);
    return value;
  }

  /** The counter at `key`. Updates have scope local: they are decided at once, with the rights of the data center that is asked. */
  counter(key: Bytes): Counter {
    return new Counter(this, key, "local");
  }

  /** Adds to several counters of one partition, to all or to none; less than 0 decrements. Sent again as `Counter.add`. */
  async addAll(additions: Iterable<readonly [Bytes, number]>, scope: Scope = "local"): Promise<number[]> {
    const args = [...additions].flat();
    if (args.length === 0) throw new errors.Refused("nothing to add");
    const [reply] = await this.#perform(() => [own("RHEO", "COUNTER", "ADD", ...args, scope, "ID", ...this.#state.nextName())], true, true);
    return Array.isArray(reply[0]) ? reply[0].map(Number) : [Number(reply[0])];
  }

  /** @internal One command of ours. */
  async one(writes: boolean, ...args: (Word | number)[]): Promise<unknown> {
    return (await this.#one(writes, own(...args)))[0];
  }

  async #one(writes: boolean, command: Command): Promise<[unknown, Quality]> {
    const [replies, quality] = await this.#perform([command], writes);
    return [replies[0], quality];
  }

  /** @internal A command of node-redis, with a reply as that has it. */
  async execute(args: readonly Word[], options: unknown): Promise<unknown> {
    fits(args);
    const [replies] = await this.#perform([{ args, options }], !isRead(args));
    return replies[0];
  }

  /** @internal Several commands of node-redis, with replies as that has them; error replies are values. */
  async executeAll(all: readonly (readonly Word[])[], transaction: boolean, options: unknown): Promise<unknown[]> {
    all.forEach(fits);
    const commands = all.map((args): Command => ({ args, options }));
    if (!transaction) {
      // One that comes alone would reject with its error.
      const [replies] = await this.#perform([...commands, own("PING")], !all.every(isRead));
      return replies.slice(0, -1);
    }
    const [replies] = await this.#perform([own("MULTI"), ...commands, { args: ["EXEC"], options }], true);
    const made = replies.at(-1);
    const wrong = replies.slice(1, -1).find((reply) => reply instanceof ErrorReply);
    if (made instanceof ErrorReply) throw errors.ofReply(wrong instanceof Error ? wrong : made);
    return made as unknown[];
  }

  /**
   * The replies of commands, and the quality. A single one that is answered with an error rejects with it, and so does what makes none of them be done.
   *
   * What writes is sent when the server has said that it took session and level; so where it did not, nothing was changed. Reads go along with them.
   */
  #perform(commands: readonly Command[] | (() => readonly Command[]), writes: boolean, named = false): Promise<[unknown[], Quality]> {
    return this.#state.inTurn(async () => {
      this.#signal?.throwIfAborted();
      return this.#try(typeof commands === "function" ? commands() : commands, writes, named);
    }, this.#signal);
  }

  async #try(commands: readonly Command[], writes: boolean, named: boolean): Promise<[unknown[], Quality]> {
    const client = this.#client;
    const deadline = performance.now() + client.options.deadlineMs;
    let left = client.options.readRetries;
    let pause = client.options.retryPauseMs;
    let passed = new Set<number>();
    const renewed = new Set<number>();
    let doneAt: number | undefined;
    let doubt: Error | undefined;
    let at = client.choose(passed) ?? 0;
    const failed = (error: Error): Error => {
      if (!named || doneAt === undefined) return error;
      this.#state.rename();
      return doubt && saysNothingChanged(error) ? doubt : error;
    };
    for (;;) {
      const region = client.regions[at];
      if (!region) throw new errors.Refused("no region to connect to");
      let sent = false;
      let error: Error;
      try {
        // Half of the time is left for another region, if it can go there.
        const elsewhere = doneAt === undefined && client.choose(new Set([...passed, at])) !== undefined;
        const patienceMs = elsewhere ? client.options.deadlineMs / 2 : Infinity;
        const result = await this.#attempt(at, commands, writes, deadline, patienceMs, () => (sent = true));
        const [reply] = result[0];
        if (commands.length !== 1 || !(reply instanceof ErrorReply)) return result;
        error = errors.ofReply(reply);
        const passing = error instanceof errors.Busy || error instanceof errors.Unreachable;
        const uncertain = error instanceof errors.Unreachable || error instanceof errors.Timeout;
        if (named && uncertain) [doneAt, doubt] = [at, error];
        if (!(passing && !writes) && !(named && (passing || uncertain))) throw failed(error);
      } catch (thrown) {
        if (thrown instanceof NoConnection) {
          client.avoid(at);
          passed.add(at);
          error = new errors.Unreachable(`${region.pool.name}: ${thrown.message}`, doneAt === undefined, { cause: thrown });
          const next = doneAt === undefined ? client.choose(passed) : undefined;
          if (next !== undefined) {
            at = next;
            continue;
          }
          passed = new Set();
        } else if (thrown instanceof Lost) {
          const may = sent || doneAt !== undefined;
          const text = `${region.pool.name}: ${thrown.message}`;
          error = thrown.timedOut ? new errors.Timeout(text, { cause: thrown }) : new errors.Unreachable(text, !may, { cause: thrown });
          if (sent) {
            if (!named) throw error;
            [doneAt, doubt] = [at, error];
          } else if (!renewed.has(at) && !thrown.timedOut) {
            // A connection of the pool may have been lost long ago, with its node; the next one is made anew.
            renewed.add(at);
            continue;
          } else if (!may) {
            client.avoid(at);
          }
        } else if (!sent && isForgotten(thrown) && !renewed.has(at)) {
          // Others of the pool would have to show it, too.
          renewed.add(at);
          region.pool.clear();
          continue;
        } else {
          if (sent && doneAt === undefined && this.#signal?.aborted) doneAt = at;
          throw failed(thrown as Error);
        }
      }
      if (left <= 0 || performance.now() + pause > deadline) throw failed(error);
      left -= 1;
      try {
        await sleep(pause, undefined, this.#signal ? { signal: this.#signal } : {});
      } catch {
        // Node's error of its own stands for the signal's reason.
        throw failed(this.#signal?.reason as Error);
      }
      pause *= 2;
      if (doneAt === undefined) at = client.choose(passed) ?? 0;
    }
  }

  async #attempt(
    at: number,
    commands: readonly Command[],
    writes: boolean,
    deadline: number,
    patienceMs: number,
    sending: () => void,
  ): Promise<[unknown[], Quality]> {
    const region = this.#client.regions[at];
    if (!region) throw new errors.Refused("no region to connect to");
    const { pool } = region;
    const signal = this.#signal;
    const connection = await pool.take(deadline, signal, patienceMs);
    let clean = false;
    try {
      const [asked, usual] = aroundDial(this.#dial);
      const here = this.keyspace !== undefined;
      const before = [
        ...(here ? [own("SELECT", this.keyspace ?? "")] : []),
        this.token ? own("RHEO", "SESSION", "RESUME", this.token) : own("RHEO", "SESSION", "RESET"),
        ...asked,
      ];
      const after = [...usual, own("RHEO", "SESSION", "RESET"), ...(here ? [own("SELECT", pool.database)] : [])];
      const tail = [...commands, own("RHEO", "QUALITY"), own("RHEO", "SESSION", "GET"), ...after];
      const boundMs = (this.#dial.withinMs ?? 0) * commands.length;
      let replies: unknown[];
      if (writes) {
        const wrong = refusal(await pool.talk(connection, before, signal));
        if (wrong) {
          if (!isForgotten(wrong)) {
            await pool.talk(connection, after, signal);
            clean = true;
          }
          throw wrong;
        }
        sending();
        replies = await pool.talk(connection, tail, signal, boundMs);
      } else {
        replies = await pool.talk(connection, [...before, ...tail], signal, boundMs);
        const wrong = refusal(replies.splice(0, before.length));
        clean = wrong !== undefined && !isForgotten(wrong);
        if (wrong) throw wrong;
      }
      const [quality, token, ...ended] = replies.splice(commands.length);
      const unclear = [quality, token, ...ended].find((reply) => reply instanceof ErrorReply);
      if (unclear) throw new errors.ServerError(`the session could not be told from the connection: ${String(unclear)}`);
      clean = true;
      this.#state.token = String(token);
      this.#state.quality = qualityOf(quality);
      region.avoidedUntil = 0;
      return [replies, this.#state.quality];
    } finally {
      if (clean) pool.give(connection);
      else pool.drop(connection);
    }
  }
}

/** Whether the error of a named update's last try says that this try has changed nothing. Of the tries before it that says nothing. */
function saysNothingChanged(error: Error): boolean {
  const ofAllTries = [errors.Timeout, errors.Unreachable, errors.ServerError, errors.NoRights];
  return error instanceof errors.RheostatError && !ofAllTries.some((kind) => error instanceof kind);
}

/** Why the server does not take the session, if it does not. */
function refusal(replies: readonly unknown[]): errors.RheostatError | NoConnection | undefined {
  const wrong = replies.filter((reply) => reply instanceof ErrorReply).map(refusalOf);
  return wrong.find((error) => error instanceof errors.NotRheostat) ?? wrong[0];
}

function expiry(options: PutOptions): (string | number)[] {
  return options.expiresAfterMs === undefined ? [] : ["PX", Math.max(1, Math.round(options.expiresAfterMs))];
}

function written(quality: Quality): Version {
  if (!quality.version) throw new errors.ServerError("the answer does not say which version was written");
  return quality.version;
}
