/** A node-redis client whose commands belong to a session. */

import type { NodeRedis, Word } from "./pool.js";
import type { Session } from "./session.js";


/**
 * `client` as an object of its own, on whose commands `which` is asked for the session. Commands are made by node-redis, which calls `_executeCommand` (and `_executePipeline`,
 * `_executeMulti`) of what it takes for itself.
 */
export function lend<C extends NodeRedis>(client: C, which: () => Session | undefined): C {
  const real = client as any;
  async function executeCommand(command: any, parser: any, options: any, transform: any): Promise<unknown> {
    const session = which();
    if (!session) return real._executeCommand(command, parser, options, transform);
    const reply = await session.execute(parser.redisArgs as Word[], options);
    return transform ? transform(reply, parser.preserve, options?.typeMapping) : reply;
  }
  const own = Object.create(real, { _executeCommand: { value: executeCommand } });
  return Object.create(real, {
    _self: { value: own },
    _executeCommand: { value: executeCommand },
    sendCommand: {
      value: (args: Word[], options?: unknown) => {
        const session = which();
        return session ? session.execute(args, options) : real.sendCommand(args, options);
      },
    },
    _executePipeline: {
      value(this: any, commands: { args: Word[] }[], ...more: unknown[]) {
        const session = which();
        return session ? session.executeAll(commands.map(({ args }) => args), false, this._commandOptions) : real._executePipeline(commands, ...more);
      },
    },
    _executeMulti: {
      value(this: any, commands: { args: Word[] }[], ...more: unknown[]) {
        const session = which();
        return session ? session.executeAll(commands.map(({ args }) => args), true, this._commandOptions) : real._executeMulti(commands, ...more);
      },
    },
  }) as C;
}
