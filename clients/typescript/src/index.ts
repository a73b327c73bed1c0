/** Rheostat for node-redis: sessions that go along with a user, levels for each call, counters with bounds. Start at {@link Client}. */

export { Client, currentSession } from "./client.js";
export { Counter } from "./counter.js";
export * from "./errors.js";
export type { NodeRedis } from "./pool.js";
export { Session } from "./session.js";
export * from "./types.js";
export { type Evidence, type Missed, type Moment, type Said, type Silence, type Violation, Violations } from "./violation.js";
export { SESSION_HEADER, sessionMiddleware, type WithSession } from "./web.js";
