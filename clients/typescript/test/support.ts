/** The cluster, and what harms it. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { after, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "@redis/client";
import { Client, type Options, RheostatError } from "../src/index.js";

const SUITE = process.env["RHEOSTAT_SUITE"];
if (!SUITE) throw new Error("these tests need the cluster that clients/test.sh starts: clients/test.sh typescript");
const PROGRAM = process.env["RHEOSTAT"] ?? "";
const PATIENCE_MS = 60_000;
export const PASSWORD = "open sesame";
export const KEYSPACE = "default";
export const PLACES = ["us-east", "us-west", "eu"] as const;
export type Place = (typeof PLACES)[number];
export const EAST_ALONE: [Place, Place][] = [["us-east", "us-west"], ["us-east", "eu"]];

export function port(place: Place): number {
  return Number(process.env["RHEOSTAT_PORT"]) + 10 * PLACES.indexOf(place);
}

export function key(name: string): string {
  return `ts:${name}:${randomBytes(6).toString("hex")}`;
}

export function redis(where: Place | number, options: object = {}) {
  const made = createClient({ password: PASSWORD, ...options, socket: { host: "127.0.0.1", port: typeof where === "number" ? where : port(where), connectTimeout: 20_000 } });
  made.on("error", () => undefined);
  return made;
}

export type Redis = ReturnType<typeof redis>;

const open: { close(): void }[] = [];
after(() => open.forEach((one) => one.close()));

export function connect(where: Place | number | (Place | number)[], options: Options = {}, ofRedis: object = {}): Client<Redis> {
  const regions = Array.isArray(where) ? where : [where];
  const client = new Client(regions.map((one) => redis(one, ofRedis)), { replyTimeoutMs: 20_000, ...options });
  open.push(client);
  return client;
}

/** Waits for what is neither undefined nor false; errors of ours are tried again. */
export async function eventually<T>(what: string, attempt: () => Promise<T | undefined | false>): Promise<T> {
  let last: unknown;
  for (const until = performance.now() + PATIENCE_MS; performance.now() < until; await sleep(20)) {
    try {
      const result = await attempt();
      if (result !== undefined && result !== false) return result;
    } catch (error) {
      if (!(error instanceof RheostatError)) throw error;
      last = error;
    }
  }
  throw new Error(`never came: ${what}`, { cause: last });
}

export function ctl(...words: string[]): void {
  execFileSync(PROGRAM, ["ctl", ...words], { stdio: "pipe", timeout: 120_000 });
}

/** Cuts links, until the test's end or until what is returned is called. */
export function cut(context: TestContext, links: [Place, Place][]): () => void {
  const address = `127.0.0.1:${port("us-east") + 1}`;
  let whole = false;
  const heal = () => {
    if (!whole) links.forEach(([one, other]) => ctl("--address", address, "resume-link", one, other));
    whole = true;
  };
  context.after(heal);
  links.forEach(([one, other]) => ctl("--address", address, "pause-link", one, other));
  return heal;
}

export function tell(place: Place, what: NodeJS.Signals): void {
  process.kill(Number(readFileSync(join(SUITE ?? "", "nodes", `${place}-1`, "pid"), "utf8").split(" ")[0]), what);
}

export function startAgain(): void {
  ctl("cluster", "up", join(SUITE ?? "", "cluster.toml"));
}

async function listen(server: net.Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as net.AddressInfo).port;
}

/** Passes bytes on to a port. What has `marker` in it is passed on, and its answer is not: the connection is lost instead, the first `times` times. While it hangs, nothing is passed on. One that ends takes no connection after the first that it has lost. */
export async function proxy(target: number, marker = "\xff", times = 0) {
  const told = { seen: 0, port: 0, hangs: false, ends: false, drop: () => clients.splice(0).forEach((client) => client.destroy()) };
  const clients: net.Socket[] = [];
  const server = net.createServer((client) => {
    const to = net.connect(target, "127.0.0.1");
    clients.push(client);
    let lose = false;
    client.on("data", (data) => {
      if (data.includes(marker) && ++told.seen <= times) {
        lose = true;
        if (told.ends) server.close();
      }
      if (!told.hangs) to.write(data);
    });
    to.on("data", (data) => void (lose ? client.destroy() : client.write(data)));
    for (const [one, other] of [[client, to], [to, client]] as const) one.on("error", () => undefined).on("close", () => other.destroy());
  });
  told.port = await listen(server);
  open.push({ close: () => server.close() });
  return told;
}

/** Has a predicate over keys of the keyspace eventual watched for. */
export function watch(name: string, expression: string): void {
  ctl("--address", `127.0.0.1:${port("us-east") + 1}`, "monitor", "add", name, expression, "--keyspace", "eventual");
}

function alarm(number: number): string {
  const texts = Object.entries({ what: "possible", monitor: "m", keyspace: "k", node: "n", not_before: "1.0" });
  const pairs = texts.map(([name, said]) => `$${name.length}\r\n${name}\r\n$${said.length}\r\n${said}\r\n`).join("");
  return `>2\r\n$7\r\nmonitor\r\n%8\r\n${pairs}$6\r\nnumber\r\n:${number}\r\n$5\r\nat_ms\r\n:1\r\n$8\r\nevidence\r\n*0\r\n`;
}

/**
 * Speaks enough of Redis to be asked for RHEO, and says that it does not know it. One that has alarms knows it, tells so many to whoever listens first, and refuses all after that.
 * One that is opening its data answers with LOADING to all but the commands that it greets. One that is busy knows RHEO, loses the connection on which the first update of a
 * counter comes, and answers those that follow with BUSY.
 */
export async function plainRedis(resp3 = false, alarms = 0, greets?: string[], busy = false) {
  const told = { commands: [] as string[], port: 0, told: false, updates: 0 };
  const known = new Set(["SELECT", "SET", "GET", "CLIENT", "AUTH", "PING"]);
  const server = net.createServer((client) => {
    let input = "";
    client.on("error", () => undefined).on("data", (data) => {
      input += data.toString();
      for (;;) {
        const lines = input.split("\r\n");
        const count = Number(lines[0]?.slice(1));
        if (!input || lines.length < 2 * count + 2) return;
        const [name, second] = [(lines[2] ?? "").toUpperCase(), lines[4]];
        input = lines.slice(2 * count + 1).join("\r\n");
        const listened = alarms > 0 && told.commands.includes("RHEO");
        told.commands.push(name);
        if (greets && !greets.includes(name)) client.write("-LOADING this node is opening its data: 0 of 2 partition servers are open\r\n");
        else if (busy && name === "RHEO" && second === "COUNTER") {
          if (++told.updates === 1) return void client.destroy();
          client.write("-BUSY too much waits here\r\n");
        } else if (busy && name === "RHEO") client.write(second === "QUALITY" ? "*0\r\n" : "+OK\r\n");
        else if (name === "HELLO" && resp3) client.write("%1\r\n$5\r\nproto\r\n:3\r\n");
        else if (name === "RHEO" && listened) client.write("-NOPERM no more\r\n");
        else if (name === "PING" && listened) client.write("-NOAUTH Authentication required.\r\n");
        else if (name === "RHEO" && alarms) client.write(`+OK\r\n${Array.from({ length: alarms }, (_, number) => alarm(number)).join("")}`, () => (told.told = true));
        else client.write(known.has(name) ? "+OK\r\n" : `-ERR unknown command '${name}', with args beginning with: \r\n`);
      }
    });
  });
  told.port = await listen(server);
  open.push({ close: () => server.close() });
  return told;
}

export async function unusedPort(): Promise<number> {
  const server = net.createServer();
  const found = await listen(server);
  await new Promise((resolve) => server.close(resolve));
  return found;
}

export function text(value: Buffer | null | undefined): string | null {
  return value === null || value === undefined ? null : value.toString();
}

export { assert, sleep };
