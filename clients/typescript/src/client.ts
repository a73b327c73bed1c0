/** The client: your node-redis clients, one for each region. */

import { AsyncLocalStorage } from "node:async_hooks";
import * as errors from "./errors.js";
import { lend } from "./lend.js";
import { Pool, type NodeRedis } from "./pool.js";
import { Session, State } from "./session.js";
import type { Options } from "./types.js";

const current = new AsyncLocalStorage<Session | undefined>();

/** The session that commands belong to, where `Session.asCurrent` or the middleware has set one. */
export function currentSession(): Session | undefined {
  return current.getStore();
}

/** Runs `body` with `session` as the current one. */
export function withCurrent<T>(session: Session, body: () => T): T {
  return current.run(session, body);
}

/** One region. */
export interface Region {
  readonly pool: Pool;
  avoidedUntil: number;
}

/** Your node-redis clients, one for each region, the nearest first. */
export class Client<C extends NodeRedis = NodeRedis> {
  /** The first of your clients, with commands that belong to the current session; without one they are as they were. It must be connected for those. */
  readonly redis: C;
  /** @internal */
  readonly regions: readonly Region[];
  /** @internal */
  readonly options: Required<Options>;
  /** @internal */
  readonly given: C;

  /**
   * `regions`: any node of a region serves every key, so one client for each is enough. Their options are taken over (address, TLS, password); the connections are
   * this client's own, because node-redis shares one between all callers. `close` closes them.
   */
  constructor(regions: C | readonly C[], options: Options = {}) {
    const all: readonly C[] = Array.isArray(regions) ? (regions as readonly C[]) : [regions as C];
    const [first] = all;
    if (first === undefined) throw new errors.Refused("no region to connect to");
    this.options = { deadlineMs: 5000, replyTimeoutMs: 10000, readRetries: 3, retryPauseMs: 20, returnAfterMs: 5000, silenceAfterMs: 10000, poolSize: 50, ...options };
    this.regions = all.map((one) => ({ pool: new Pool(one, this.options.poolSize, this.options.replyTimeoutMs), avoidedUntil: 0 }));
    this.given = first;
    this.redis = lend(first, currentSession);
  }

  /** A new session in `keyspace` (name or number); nothing is that of the Redis clients. */
  session(keyspace?: string | number): Session<C> {
    return this.resume(keyspace, "");
  }

  /** The session that `token` stands for. A token that does not belong here is refused by the first operation. */
  resume(keyspace: string | number | undefined, token: string): Session<C> {
    return new Session(this, keyspace, new State(token), {});
  }

  /** Closes the connections. */
  close(): void {
    for (const region of this.regions) region.pool.close();
  }

  /** @internal The first region that is not passed over, else the first of those that are and have not been tried now. */
  choose(passed: ReadonlySet<number>): number | undefined {
    const now = performance.now();
    const left = [...this.regions.keys()].filter((index) => !passed.has(index));
    return left.find((index) => (this.regions[index]?.avoidedUntil ?? 0) <= now) ?? left[0];
  }

  /** @internal */
  avoid(region: number): void {
    const avoided = this.regions[region];
    if (avoided) avoided.avoidedUntil = performance.now() + this.options.returnAfterMs;
  }
}
