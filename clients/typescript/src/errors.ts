/** Why an operation failed. All are node-redis' `ErrorReply` too, so that code which catches that goes on doing so. */

import { ErrorReply } from "@redis/client";

/** What all errors of this package are. */
export abstract class RheostatError extends ErrorReply {
  constructor(message: string, options?: ErrorOptions) {
    super(message);
    this.name = new.target.name;
    if (options && "cause" in options) this.cause = options.cause;
  }
}

/** The request is malformed, or the keyspace does not serve it. Nothing was changed. */
export class Refused extends RheostatError {}

/** The server does not know `RHEO`: it is a Redis, not a Rheostat. */
export class NotRheostat extends Refused {}

/** The session's token is damaged or forged, does not belong to this cluster or keyspace, or was signed too long ago. Nothing was changed. */
export class TokenError extends RheostatError {}

/** The password is missing or wrong, or the user may not do this. Nothing was changed. */
export class Unauthenticated extends RheostatError {}

/** The server has too much to do, or the pool has no connection left. Nothing was changed. */
export class Busy extends RheostatError {}

/** The deadline passed. A write may have happened. */
export class Timeout extends RheostatError {}

/** No region can be reached, or the connection was lost. A write may have happened, unless `nothingSent`. */
export class Unreachable extends RheostatError {
  /** Whether it is certain that nothing was changed. */
  readonly nothingSent: boolean;

  constructor(message: string, nothingSent = false, options?: ErrorOptions) {
    super(message, options);
    this.nothingSent = nothingSent;
  }
}

/** The server's store failed, or it answered something that this client does not understand. A write may have happened. */
export class ServerError extends RheostatError {}

/** A counter would leave its bounds, with the rights that the update could use. Nothing was changed. */
export class NoRights extends RheostatError {
  /** The counter. */
  readonly key: string;
  /** Its value as known in the data center that answered. */
  readonly value: number | undefined;
  /** Which rights are missing. */
  readonly direction: "down" | "up" | undefined;
  /** How many rights are needed. */
  readonly needed: number | undefined;
  /** How many rights that data center has. */
  readonly here: number | undefined;
  /** How many rights the others have, as known there. */
  readonly elsewhere: number | undefined;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    const found = RIGHTS.exec(message);
    const number = (group: number): number | undefined => (found ? Number(found[group]) : undefined);
    this.key = found?.[1] ?? "";
    this.value = number(2);
    this.needed = number(3);
    this.direction = found ? (found[4] === "decrement" ? "down" : "up") : undefined;
    this.here = number(5);
    this.elsewhere = number(6);
  }
}

const RIGHTS = /counter (.*) is at (-?\d+) and needs (\d+) rights to (decrement|increment); here are (\d+), elsewhere (\d+)/s;

/** An error reply, as one of ours. */
export function ofReply(error: Error): RheostatError {
  if (error instanceof RheostatError) return error;
  const options = { cause: error };
  const [, code = "", text = ""] = /^(\S*) ?(.*)$/s.exec(error.message) ?? [];
  switch (code) {
    case "NOAUTH":
    case "WRONGPASS":
    case "NOPERM":
      return new Unauthenticated(text, options);
    case "SESSION":
      return new TokenError(text, options);
    case "NORIGHTS":
      return new NoRights(text, options);
    case "BUSY":
      return new Busy(text, options);
    case "TIMEOUT":
    case "NOREPLICAS":
      return new Timeout(text, options);
    case "CLUSTERDOWN":
      return new Unreachable(text, false, options);
    case "LOADING":
      return new Unreachable(text, true, options);
    case "ERR":
    case "CROSSSLOT":
    case "EXECABORT":
    case "NOPROTO":
    case "WRONGTYPE":
      if (/^unknown command ['`]rheo['`]/i.test(text)) return new NotRheostat(`the server does not know RHEO, so it is no Rheostat: ${text}`, options);
      return new Refused(text, options);
    default:
      return new ServerError(error.message, options);
  }
}
