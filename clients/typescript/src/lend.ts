/** A node-redis client whose commands belong to a session. */

import { Refused } from "./errors.js";
import type { NodeRedis, Word } from "./pool.js";
import type { Session } from "./session.js";

/** What node-redis keeps in mind of its connection, so that it would be done to the one that the application shares. */
const OF_A_CONNECTION = "select watch unwatch subscribe unsubscribe pSubscribe pUnsubscribe sSubscribe sUnsubscribe monitor reset quit".split(" ");

/**
 * `client` as an object of its own, on whose commands `which` is asked for the session. Commands are made by node-redis, which calls `_executeCommand` (and `_executePipeline`,
 * `_executeMulti`) of what it takes for itself.
 */
export function lend<C extends NodeRedis>(client: C, which: () => Session | undefined): C {
  const real = client as any;
  function sessionFor(options: any): Session | undefined {
    const session = which();
    return options?.abortSignal ? session?.withSignal(options.abortSignal) : session;
  }
  async function executeCommand(command: any, parser: any, options: any, transform: any): Promise<unknown> {
    const session = sessionFor(options);
    if (!session) return real._executeCommand(command, parser, options, transform);
    const reply = await session.execute(parser.redisArgs as Word[], options);
    return transform ? transform(reply, parser.preserve, options?.typeMapping) : reply;
  }
  const ofAConnection = (name: string) => ({
    value: async (...args: unknown[]) => {
      if (which()) throw new Refused(`${name} is about a connection, and a session has none of its own: use the session's methods`);
      return real[name](...args);
    },
  });
  const own = Object.create(real, { _executeCommand: { value: executeCommand } });
  return Object.create(real, {
    _self: { value: own },
    _executeCommand: { value: executeCommand },
    sendCommand: {
      value(this: any, args: Word[], options?: object) {
        const all = { ...this._commandOptions, ...options };
        const session = sessionFor(all);
        return session ? session.execute(args, all) : real.sendCommand(args, all);
      },
    },
    _executePipeline: {
      value(this: any, commands: { args: Word[] }[], ...more: unknown[]) {
        const session = sessionFor(this._commandOptions);
        return session ? session.executeAll(commands.map(({ args }) => args), false, this._commandOptions) : real._executePipeline(commands, ...more);
      },
    },
    _executeMulti: {
      value(this: any, commands: { args: Word[] }[], ...more: unknown[]) {
        const session = sessionFor(this._commandOptions);
        return session ? session.executeAll(commands.map(({ args }) => args), true, this._commandOptions) : real._executeMulti(commands, ...more);
      },
    },
    // node-redis makes these of `_self`, and so past the session.
    withCommandOptions: {
      value(this: any, options: object) {
        return Object.create(this, { _commandOptions: { value: { ...this._commandOptions, ...options }, writable: true } });
      },
    },
    _commandOptionsProxy: {
      value(this: any, key: string, value: unknown) {
        return this.withCommandOptions({ [key]: value });
      },
    },
    ...Object.fromEntries(OF_A_CONNECTION.flatMap((name) => [name, name.toUpperCase()].map((one) => [one, ofAConnection(name)]))),
  }) as C;
}
