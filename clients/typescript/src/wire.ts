/** A connection on which messages are pushed (RESP3): node-redis' encoder and decoder on a socket of its options, since its client hands out no pushes but its own. */

import net from "node:net";
import tls from "node:tls";
import { RESP_TYPES } from "@redis/client";
import encoder from "@redis/client/dist/lib/RESP/encoder.js";
import { Decoder } from "@redis/client/dist/lib/RESP/decoder.js";
import { LONGEST_TIMER_MS, Lost, NoConnection, type NodeRedis } from "./pool.js";

const BUFFERS = { [RESP_TYPES.BLOB_STRING]: Buffer };

interface Credentials {
  username?: string | undefined;
  password?: string | undefined;
}

/** What the client would show. */
async function credentialsOf(options: any): Promise<Credentials> {
  const provider = options.credentialsProvider;
  if (provider?.type === "async-credentials-provider") return provider.credentials();
  if (provider?.type === "streaming-credentials-provider") {
    const [first, subscription] = await provider.subscribe({ onNext: () => undefined, onError: () => undefined });
    subscription.dispose();
    return first;
  }
  return options;
}

export class Wire {
  /** Why the connection ended; never rejected. */
  readonly lost: Promise<Lost>;

  readonly #socket: net.Socket;
  readonly #silenceAfterMs: number;
  readonly #replies: { resolve(reply: unknown): void; reject(error: Error): void }[] = [];
  #timer: NodeJS.Timeout | undefined;
  #asked = false;
  #end: (why: Lost) => void = () => undefined;

  private constructor(socket: net.Socket, silenceAfterMs: number, pushed: (message: unknown[]) => void) {
    this.#socket = socket;
    this.#silenceAfterMs = silenceAfterMs;
    this.lost = new Promise((resolve) => {
      this.#end = (why) => {
        clearTimeout(this.#timer);
        socket.destroy();
        for (const waiting of this.#replies.splice(0)) waiting.reject(why);
        resolve(why);
      };
    });
    const decoder = new Decoder({
      onReply: (reply) => this.#replies.shift()?.resolve(reply),
      onErrorReply: (error) => this.#replies.shift()?.reject(error),
      onPush: pushed,
      getTypeMapping: () => BUFFERS,
    });
    socket.on("data", (data) => {
      this.#asked = false;
      this.#timer?.refresh();
      try {
        decoder.write(data);
      } catch (error) {
        this.#end(new Lost(`not understood: ${String(error)}`, false));
      }
    });
    socket.on("error", (error) => this.#end(new Lost(String(error), false)));
    socket.on("close", () => this.#end(new Lost("the connection was closed", false)));
  }

  /** A connection with the options of `given`, its user told, and `words` sent. Throws NoConnection, Lost, or the server's error reply. */
  static async open(
    given: NodeRedis,
    words: string[],
    silenceAfterMs: number,
    replyTimeoutMs: number,
    signal: AbortSignal,
    pushed: (message: unknown[]) => void,
  ): Promise<Wire> {
    const options = given.options ?? {};
    const { connectTimeout = 5000, socketTimeout: _, reconnectStrategy: __, ...where } = options.socket ?? {};
    const socket: net.Socket = where.tls ? tls.connect({ ...where, port: where.port ?? 6379 }) : net.connect(where.path ? where : { ...where, port: where.port ?? 6379 });
    socket.setNoDelay(true);
    socket.setKeepAlive(true);
    const stop = (): void => void socket.destroy(signal.reason as Error);
    signal.addEventListener("abort", stop);
    try {
      await new Promise<void>((resolve, reject) => {
        const timer = setTimeout(() => socket.destroy(new Error(`no connection within ${connectTimeout} ms`)), connectTimeout);
        const done = (then: () => void) => () => {
          clearTimeout(timer);
          then();
        };
        socket.once(where.tls ? "secureConnect" : "connect", done(resolve));
        socket.once("error", (error) => done(() => reject(new NoConnection(String(error))))());
        if (signal.aborted) stop();
      });
      const wire = new Wire(socket, silenceAfterMs, pushed);
      const within = Math.min(LONGEST_TIMER_MS, replyTimeoutMs);
      const late = setTimeout(() => wire.#end(new Lost(`no reply within ${within} ms`, true)), within);
      try {
        const { username, password } = await credentialsOf(options);
        await wire.#ask("HELLO", "3", ...(password ? ["AUTH", username ?? "default", password] : []));
        await wire.#ask(...words);
      } finally {
        clearTimeout(late);
      }
      wire.#watch();
      return wire;
    } catch (error) {
      socket.destroy();
      throw error;
    } finally {
      signal.removeEventListener("abort", stop);
    }
  }

  /** The reply to a command. Throws Lost, or the error reply. */
  #ask(...words: string[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#socket.destroyed) return reject(new Lost("the connection was closed", false));
      this.#replies.push({ resolve, reject });
      for (const part of encoder.default(words)) this.#socket.write(part);
    });
  }

  /** From now on it is asked whether somebody is there when nothing is heard for half of the time. */
  #watch(): void {
    const half = Math.min(LONGEST_TIMER_MS, this.#silenceAfterMs / 2);
    const look = (): void => {
      if (!this.#asked) {
        this.#asked = true;
        // Who is refused is told nothing more: its password was changed, or it may not any more.
        this.#ask("PING").catch((error: unknown) => this.#end(new Lost(String(error), false)));
        this.#timer = setTimeout(look, half);
        return;
      }
      // What has come while this process did something else is read first.
      setImmediate(() => {
        if (this.#asked) this.#end(new Lost(`nothing was heard for ${this.#silenceAfterMs} ms`, true));
        else this.#timer = setTimeout(look, half);
      });
    };
    if (!this.#socket.destroyed) this.#timer = setTimeout(look, half);
  }

  /** Closes it. */
  close(): void {
    this.#end(new Lost("closed", false));
  }
}
