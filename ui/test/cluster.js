// What the tests stand on: a demonstration cluster, a single node with a password, and a Redis client of a few lines.

import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';

const program = process.env.RHEOSTAT;
const running = new Set();

/** Ends whatever a test that failed has left. */
export const endAll = () => running.forEach((child) => child.kill('SIGKILL'));

/** Starts `arguments`, and waits until what it prints fits `ready`. Returns the match, and how to end it. */
function start(words, ready) {
  const child = spawn(program, words, { stdio: ['ignore', 'pipe', 'pipe'] });
  running.add(child);
  const ended = new Promise((resolve) => { child.once('exit', resolve); }).finally(() => running.delete(child));
  return new Promise((resolve, reject) => {
    let printed = '';
    const hear = (chunk) => {
      printed += chunk;
      const found = ready.exec(printed);
      if (found) resolve({ printed, found, end: async () => { child.kill('SIGTERM'); await ended; }, kill: async () => { child.kill('SIGKILL'); await ended; } });
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    ended.then((code) => reject(new Error(`${words.join(' ')} ended with ${code}: ${printed}`)));
  });
}

const given = new Set();

/** A port that is free now, and that no connection goes out from: the kernel draws theirs from higher ones, and one may take what a node listens at while that starts again. */
async function free() {
  for (;;) {
    const port = 8000 + Math.floor(Math.random() * 1900);
    if (given.has(port)) continue;
    given.add(port);
    const isFree = await new Promise((resolve) => {
      const server = net.createServer().once('error', () => resolve(false)).listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
    });
    if (isFree) return port;
  }
}

/** The demonstration: its console, and the RESP ports of its data centers. */
export async function demo() {
  // Somewhere free, or wherever it then finds ports itself.
  const base = await free();
  const { printed, end } = await start(['demo', '--base-port', String(base)], /Ctrl-C ends it/);
  const ports = [...printed.matchAll(/^ {2}(\S+) +127\.0\.0\.1:(\d+) +127\.0\.0\.1:\d+ +http/gm)].map(([, name, port]) => [name, Number(port)]);
  return { url: /^Console: (http:\S+)/m.exec(printed)[1], ports: Object.fromEntries(ports), end };
}

/** A node that wants a password, with a console that changes nothing. */
export async function guarded(password, more = '') {
  const folder = mkdtempSync(path.join(tmpdir(), 'rheostat-ui-'));
  const admin = await free();
  const file = path.join(folder, 'node.toml');
  writeFileSync(file, `cluster = "guarded"\nnode = "n1"\ndata_center = "here"\n[listen]\nadmin = "127.0.0.1:${admin}"\n[[keyspace]]\nname = "default"\nprotocol = "causal"\n[security]\npassword = "${password}"\n${more}`);
  const { end } = await start(['serve', '--config', file], /serving/);
  return { url: `http://127.0.0.1:${admin}/`, end: async () => { await end(); rmSync(folder, { recursive: true }); } };
}

/** Two data centers, `here` and `there`, each a node on disk in a process of its own: the console of the first; the second can be killed and started again. */
export async function pair() {
  const folder = mkdtempSync(path.join(tmpdir(), 'rheostat-ui-'));
  const ports = {};
  for (const name of ['here', 'there']) ports[name] = { resp: await free(), grpc: await free(), admin: await free(), peer: await free() };
  const listen = (name) => Object.entries(ports[name]).map(([door, port]) => `${door} = "127.0.0.1:${port}"\n`).join('');
  const members = Object.keys(ports).map((name) => `[[member]]\nname = "${name}-1"\ndata_center = "${name}"\n${listen(name)}`).join('');
  const serve = (name) => {
    const file = path.join(folder, `${name}.toml`);
    writeFileSync(file, `cluster = "pair"\nnode = "${name}-1"\ndata_center = "${name}"\ndata_centers = ["here", "there"]\ndata_dir = "${name}"\n[listen]\n${listen(name)}${members}[[keyspace]]\nname = "default"\nprotocol = "causal"\n`);
    return start(['serve', '--config', file], /serving/);
  };
  const here = await serve('here');
  let there = await serve('there');
  return {
    url: `http://127.0.0.1:${ports.here.admin}/`,
    resp: ports.here.resp,
    kill: () => there.kill(),
    again: async () => { there = await serve('there'); },
    end: async () => { await Promise.all([here.end(), there.end()]); rmSync(folder, { recursive: true }); },
  };
}

/** The page Designer without a cluster. */
export async function designer() {
  const { found, end } = await start(['designer', '--port', '0'], /^Designer: (http:\S+)/m);
  return { url: found[1], end };
}

/** What `rheostat` prints for `words` in a folder with the file `name`; fails as it does. */
export function rheostat(name, content, ...words) {
  const folder = mkdtempSync(path.join(tmpdir(), 'rheostat-ui-'));
  writeFileSync(path.join(folder, name), content);
  try {
    return execFileSync(program, words, { cwd: folder, encoding: 'utf8' });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Sends commands, each a list of texts or bytes, by one connection at `port`; the answers as they come, undecoded. */
export function redis(port, ...commands) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, '127.0.0.1');
    let answers = '';
    let waiting = commands.length;
    const next = () => {
      const command = commands[commands.length - waiting];
      const parts = command.map((part) => (Buffer.isBuffer(part) ? part : Buffer.from(String(part))));
      socket.write(Buffer.concat([Buffer.from(`*${parts.length}\r\n`), ...parts.flatMap((part) => [Buffer.from(`$${part.length}\r\n`), part, Buffer.from('\r\n')])]));
    };
    socket.setEncoding('latin1');
    socket.on('connect', next);
    socket.on('error', reject);
    socket.on('data', (chunk) => {
      answers += chunk;
      // Each command here is answered by one line, or by a length and a line.
      if (!answers.endsWith('\r\n') || (/(^|\r\n)\$\d+\r\n$/.test(answers))) return;
      waiting -= 1;
      if (waiting > 0) return next();
      socket.end();
      resolve(answers);
    });
  });
}

/** Waits until `holds` does, for a minute at most. */
export async function until(what, holds) {
  const end = Date.now() + 60_000;
  for (;;) {
    const found = await holds();
    if (found) return found;
    if (Date.now() > end) throw new Error(`this did not come: ${what}`);
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
}
