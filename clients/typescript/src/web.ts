/** Middleware that carries a user's session with web requests. */

import type { IncomingMessage, ServerResponse } from "node:http";
import { type Client, withCurrent } from "./client.js";
import { TokenError } from "./errors.js";
import type { Session } from "./session.js";

/** The header of a web request and of its answer that carries a session's token. */
export const SESSION_HEADER = "Rheostat-Session";

/** The longest token that is taken from a web request, in bytes. */
const LONGEST_TOKEN = 16384;

/** A request with its session. */
export interface WithSession {
  rheostat?: Session;
}

/**
 * For Express, Connect and plain `node:http`: takes the session from the header, makes it the current one, puts it into the answer. A token that the servers refuse is answered with 400.
 *
 * The session is `request.rheostat`, and `currentSession()`. What is done after the answer has begun is not in the token that the answer carries.
 */
export function sessionMiddleware(client: Client<any>, keyspace?: string | number) {
  return async (request: IncomingMessage & WithSession, response: ServerResponse, next: (error?: unknown) => void): Promise<void> => {
    const token = String(request.headers[SESSION_HEADER.toLowerCase()] ?? "");
    const session: Session = client.resume(keyspace, token);
    if (token) {
      try {
        if (token.length > LONGEST_TOKEN) throw new TokenError(`longer than ${LONGEST_TOKEN} bytes`);
        await session.check();
      } catch (error) {
        if (error instanceof TokenError) {
          response.writeHead(400, { "content-type": "text/plain; charset=utf-8" }).end(`${SESSION_HEADER}: ${error.message}`);
          return;
        }
        // Whoever uses the session is told the same.
      }
    }
    request.rheostat = session;
    const writeHead = response.writeHead.bind(response) as (...args: unknown[]) => ServerResponse;
    response.writeHead = (...args: unknown[]) => {
      if (session.token && !response.headersSent) response.setHeader(SESSION_HEADER, session.token);
      return writeHead(...args);
    };
    withCurrent(session, next);
  };
}
