/** Against `cargo run --release -- demo`: npx tsc -p tsconfig.test.json && node dist/examples/five-minutes.js */

import { createClient } from "@redis/client";
import * as rheostat from "../src/index.js";

const PORT = Number(process.env["RHEOSTAT_PORT"] ?? 7400);

function region(number: number) {
  return createClient({ socket: { port: PORT + 10 * number }, ...(process.env["RHEOSTAT_PASSWORD"] ? { password: process.env["RHEOSTAT_PASSWORD"] } : {}) });
}

// One Redis client for each region, the nearest first: two clients of two applications.
const inUsEast = new rheostat.Client([region(0), region(1)]);
const inEu = new rheostat.Client([region(2), region(1)]);

// A session is what one user has seen and written.
const session = inUsEast.session("default");
const version = await session.put("tour:photo", "a sunset");
console.log("wrote", String(version));
await session.put("tour:comment", "what a sunset!");

// In another process, in another region: at least what she has seen. There it waits until that has arrived.
const elsewhere = inEu.resume("default", session.token);
const both = await elsewhere.readTransaction(["tour:comment", "tour:photo"]);
console.log("eu, one snapshot:", both.values.map(String), "at level", both.level);

// How much consistency, for one call.
const quick = await elsewhere.withDial({ level: "eventual" }).get("tour:photo");
console.log("eventual:", String(quick.value), "at most", quick.stalenessMs, "ms stale");
const best = await elsewhere.withDial({ serviceLevel: "strong 200ms; causal 50ms; eventual" }).get("tour:photo");
console.log("the best there was time for: entry", best.achieved?.entry);

// Your code keeps its Redis client: these commands belong to the session.
const lent = session.redis;
await lent.set("tour:usual", "as ever");
console.log("node-redis:", await lent.mGet(["tour:usual", "tour:photo"]));

// A counter that never leaves its bounds, in any region.
const seats = session.counter(`tour:seats:${version}`);
await seats.create({ lower: 0, initial: 3 });
let sold = 0;
try {
  for (;;) {
    await seats.global().add(-1);
    sold += 1;
  }
} catch (error) {
  if (!(error instanceof rheostat.NoRights)) throw error;
  console.log("sold", sold, "of 3:", error.message);
}
inUsEast.close();
inEu.close();
