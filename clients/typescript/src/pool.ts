/** Connections to one region, each for one operation at a time. */

import { ErrorReply, type RedisClientOptions } from "@redis/client";
import * as errors from "./errors.js";

/** One word of a command. */
export type Word = string | Buffer;

/** What is used of a node-redis client. */
export interface NodeRedis {
  readonly options?: any;
  readonly isReady: boolean;
  duplicate(overrides?: any): NodeRedis;
  connect(): Promise<unknown>;
  destroy(): void;
  sendCommand(args: any, options?: any): Promise<any>;
  on(event: any, listener: (...args: any[]) => void): unknown;
}

/** A command, and node-redis' options of it. */
export interface Command {
  readonly args: readonly Word[];
  readonly options?: unknown;
}

/** A timer of Node's that is set to more ends at once. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** How many milliseconds a command asks the server to wait before it answers. */
function waitOf({ args }: Command): number {
  return String(args[0]).toUpperCase() === "WAIT" ? Math.max(0, Number(args[2]) || 0) : 0;
}

/** No connection can be made, or the node opens its data: nothing was sent. */
export class NoConnection extends Error {}

/** What it means that a connection, or the session on it, is refused. A node that opens its data after a restart does nothing: it is as if no connection to it could be made. */
export function refusalOf(reply: ErrorReply): errors.RheostatError | NoConnection {
  const error = errors.ofReply(reply);
  return error instanceof errors.Unreachable && error.nothingSent ? new NoConnection(error.message, { cause: reply }) : error;
}

/** Whether a connection has to show its password again, as after a change of users. The next one shows what is known then. */
export function isForgotten(error: unknown): boolean {
  return error instanceof errors.Unauthenticated && error.cause instanceof Error && error.cause.message.startsWith("NOAUTH");
}

/** The connection was lost, or nothing came in time. */
export class Lost extends Error {
  constructor(
    message: string,
    readonly timedOut: boolean,
  ) {
    super(message);
  }
}

/** What `promise` comes to, unless it is given up before; then it rejects with the signal's reason. */
export function orAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    const done = (): void => signal.removeEventListener("abort", abort);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort);
    promise.then(resolve, reject).then(done, done);
  });
}

export class Pool {
  /** Where it leads. */
  readonly name: string;
  /** The keyspace that its connections are in. */
  readonly database: number;
  /** Whose options its connections have. */
  readonly given: NodeRedis;

  readonly #most: number;
  readonly #replyTimeoutMs: number;
  readonly #idle: NodeRedis[] = [];
  readonly #waiting: (() => void)[] = [];
  #count = 0;
  /** Of these, how many are being made. */
  #making = 0;
  /** How often a connection was made, or came free. */
  #had = 0;
  #closed = false;

  constructor(given: NodeRedis, most: number, replyTimeoutMs: number) {
    const options: RedisClientOptions = given.options ?? {};
    const socket = (options.socket ?? {}) as { host?: string; port?: number; path?: string };
    this.name = options.url?.replace(/\/\/.*@/, "//") ?? socket.path ?? `${socket.host ?? "localhost"}:${socket.port ?? 6379}`;
    this.database = options.database ?? 0;
    this.given = given;
    this.#most = most;
    this.#replyTimeoutMs = replyTimeoutMs;
    if (options.name?.startsWith("rheo:") && options.name.includes("session=")) {
      throw new errors.Refused(`name ${options.name} makes all connections of the pool one session; leave it out, and each user has one of their own`);
    }
  }

  /** How many connections there are. */
  get size(): number {
    return this.#count;
  }

  /**
   * A connection. Where connections are being made, and nobody has got one for `patienceMs`, the node hangs: it is as if no connection to it could be made. Those that are being
   * made would hold all places for as long as a reply may take.
   */
  async take(deadline: number, signal: AbortSignal | undefined, patienceMs = Infinity): Promise<NodeRedis> {
    const patient = performance.now() + patienceMs;
    const had = this.#had;
    for (;;) {
      signal?.throwIfAborted();
      if (this.#closed) throw new errors.Refused("the client is closed");
      const idle = this.#idle.pop();
      if (idle) {
        if (idle.isReady) return idle;
        this.drop(idle);
        continue;
      }
      if (this.#count < this.#most) {
        const made = this.#make();
        return orAborted(made, signal).catch((error: unknown) => {
          // What is made for nobody any more is the next one's.
          made.then((connection) => this.give(connection), () => undefined);
          throw error;
        });
      }
      const now = performance.now();
      if (now >= patient && this.#making > 0 && this.#had === had) throw new NoConnection(`no connection was made, and none came free, within ${patienceMs} ms`);
      if (now >= deadline) throw new errors.Busy(`the pool has no connection left: ${this.#most} are in use`);
      await this.#turn(now < patient ? Math.min(patient, deadline) : deadline, signal);
    }
  }

  async #make(): Promise<NodeRedis> {
    this.#count += 1;
    this.#making += 1;
    const socket = { ...this.given.options?.socket, reconnectStrategy: false };
    // What waits must never be sent on another connection than the session's.
    const made = this.given.duplicate({ socket, disableOfflineQueue: true });
    made.on("error", () => undefined);
    let timer: NodeJS.Timeout | undefined;
    const within = Math.min(LONGEST_TIMER_MS, this.#replyTimeoutMs);
    try {
      // To what it says first, node-redis waits for an answer without an end; a node that hangs takes connections.
      const silent = new Promise<never>((_, reject) => {
        made.on("connect", () => (timer = setTimeout(() => reject(new Error(`no reply within ${within} ms`)), within)));
      });
      await Promise.race([made.connect(), silent]);
      this.#had += 1;
      return made;
    } catch (error) {
      this.drop(made);
      if (error instanceof ErrorReply) throw refusalOf(error);
      throw new NoConnection(String(error));
    } finally {
      this.#making -= 1;
      clearTimeout(timer);
    }
  }

  /** Waits until a connection may be free, or that time has come. */
  #turn(until: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (then: () => void) => () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", abort);
        const place = this.#waiting.indexOf(free);
        if (place >= 0) this.#waiting.splice(place, 1);
        then();
      };
      const free = end(resolve);
      const abort = end(() => reject(signal?.reason as Error));
      const timer = setTimeout(free, Math.min(LONGEST_TIMER_MS, Math.max(1, until - performance.now())));
      signal?.addEventListener("abort", abort);
      this.#waiting.push(free);
    });
  }

  give(connection: NodeRedis): void {
    if (connection.isReady && !this.#closed) {
      this.#had += 1;
      this.#idle.push(connection);
      this.#waiting[0]?.();
    } else {
      this.drop(connection);
    }
  }

  drop(connection: NodeRedis): void {
    this.#count -= 1;
    try {
      connection.destroy();
    } catch {
      // It was closed before.
    }
    this.#waiting[0]?.();
  }

  /** Sends commands together; error replies are values. The server may wait `boundMs` before it answers, beside what commands ask it to wait and what a reply may take. */
  async talk(connection: NodeRedis, commands: readonly Command[], signal: AbortSignal | undefined, boundMs = 0): Promise<unknown[]> {
    let timer: NodeJS.Timeout | undefined;
    let abort: (() => void) | undefined;
    const within = Math.min(LONGEST_TIMER_MS, commands.reduce((all, command) => all + waitOf(command), this.#replyTimeoutMs + boundMs));
    const over = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Lost(`no reply within ${within} ms`, true)), within);
      if (signal) {
        abort = () => reject(signal.reason as Error);
        if (signal.aborted) abort();
        else signal.addEventListener("abort", abort);
      }
    });
    const one = async (command: Command): Promise<unknown> => {
      try {
        return await connection.sendCommand(command.args, command.options);
      } catch (error) {
        if (error instanceof ErrorReply) return error;
        throw new Lost(String(error), false);
      }
    };
    try {
      return await Promise.race([Promise.all(commands.map(one)), over]);
    } finally {
      clearTimeout(timer);
      if (abort) signal?.removeEventListener("abort", abort);
    }
  }

  /** Closes those that nobody uses. */
  clear(): void {
    for (const connection of this.#idle.splice(0)) this.drop(connection);
  }

  close(): void {
    this.#closed = true;
    this.clear();
    for (const waiting of [...this.#waiting]) waiting();
  }
}
