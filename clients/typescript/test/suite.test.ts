/** The cases of ../../suite/suite.toml. */

import http from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";
import { ErrorReply, MultiErrorReply, RESP_TYPES } from "@redis/client";
import * as rheostat from "../src/index.js";
import { assert, connect, cut, EAST_ALONE, eventually, key, KEYSPACE, PLACES, plainRedis, type Place, port, proxy, redis, sleep, startAgain, tell, text, unusedPort, watch } from "./support.js";

test("session_waits_in_another_region", async (t) => {
  const [k, east, eu] = [key("waits"), connect("us-east"), connect("eu")];
  const session = east.session(KEYSPACE);
  const heal = cut(t, EAST_ALONE);
  await session.put(k, "here");
  const elsewhere = eu.resume(KEYSPACE, session.token);
  await assert.rejects(elsewhere.withDial({ withinMs: 200 }).get(k), rheostat.Timeout);
  assert.equal((await eu.session(KEYSPACE).get(k)).value, null);
  heal();
  assert.equal(text(await eventually("the write", async () => (await elsewhere.get(k)).value ?? undefined)), "here");
});

test("token_resumes_in_another_client", async () => {
  const session = connect("us-east").session(KEYSPACE);
  const others = PLACES.map((place) => connect(place));
  for (let turn = 0; turn < 10; turn++) {
    const k = key("token");
    await session.put(k, String(turn));
    for (const other of others) assert.equal(text((await other.resume(KEYSPACE, session.token).get(k)).value), String(turn));
  }
});

test("session_is_carried_over_connections", async () => {
  const [k, client] = [key("pool"), connect("us-east")];
  const session = client.session(KEYSPACE);
  await session.put(k, "first");
  const [first, before, pool] = [await session.redis.clientId(), session.token, client.regions[0]!.pool];
  const busy = await pool.take(performance.now() + 1000, undefined);
  assert.equal(Number(await busy.sendCommand(["CLIENT", "ID"])), first);
  await session.put(`${k}2`, "second");
  assert.notEqual(await session.redis.clientId(), first);
  assert.notEqual(session.token, before);
  assert.equal(text((await session.get(k)).value), "first");
  assert.equal(text((await session.get(`${k}2`)).value), "second");
  pool.give(busy);
});

test("no_effect_before_its_cause", async (t) => {
  const [photo, comment] = [key("photo"), key("comment")];
  const eu = connect("eu");
  const heal = cut(t, [["us-east", "eu"]]);
  const session = connect("us-east").session(KEYSPACE);
  await session.put(photo, "sunset");
  const moved = session.at(connect("us-west"));
  assert.equal(text((await moved.get(photo)).value), "sunset");
  await moved.put(comment, "wow");
  let looks = 0;
  await eventually("photo and comment", async () => {
    const seen = (await eu.session(KEYSPACE).readTransaction([comment, photo])).values.map(text);
    assert.ok(seen[0] === null || seen[1] !== null, "an effect without its cause");
    looks += 1;
    if (looks === 20) heal();
    return seen[0] === "wow" && seen[1] === "sunset";
  });
});

test("merge_joins_two_sessions", async (t) => {
  const [k, writer, reader] = [key("merge"), connect("us-east").session(KEYSPACE), connect("eu").session(KEYSPACE)];
  await reader.put(key("own"), "mine");
  const heal = cut(t, EAST_ALONE);
  await writer.put(k, "yours");
  assert.equal((await reader.get(k)).value, null);
  await reader.merge(writer.token);
  await assert.rejects(reader.withDial({ withinMs: 200 }).get(k), rheostat.Timeout);
  heal();
  assert.equal(text(await eventually("the write", async () => (await reader.get(k)).value ?? undefined)), "yours");
});

test("concurrent_use_of_one_session", async () => {
  const session = connect("us-east").session(KEYSPACE);
  const keys = Array.from({ length: 20 }, () => key("together"));
  await Promise.all(
    keys.map(async (k) => {
      for (let turn = 0; turn < 5; turn++) {
        await session.put(k, String(turn));
        assert.equal(text((await session.get(k)).value), String(turn));
      }
    }),
  );
  const seen = await connect("eu").resume(KEYSPACE, session.token).readTransaction(keys);
  assert.deepEqual(seen.values.map(text), Array(20).fill("4"));
});

test("pool_of_fifty_connections", async () => {
  const client = connect("us-east", { poolSize: 50 });
  const work = async () => {
    const [session, k] = [client.session(KEYSPACE), key("fifty")];
    for (let turn = 0; turn < 10; turn++) {
      await session.put(k, String(turn));
      assert.equal(text((await session.get(k)).value), String(turn));
    }
  };
  // More than there are connections: some wait for one.
  await Promise.all(Array.from({ length: 60 }, work));
  assert.ok(client.regions[0]!.pool.size <= 50);
});

test("nothing_of_a_session_stays_on_a_connection", async () => {
  const [client, k] = [connect("us-east", { poolSize: 1 }), key("stays")];
  await client.session(KEYSPACE).put(key("seen"), "x");
  const session = client.session("eventual").withDial({ level: "eventual", strategy: "coordinated", freshMs: 60_000, withinMs: 5_000, serviceLevel: "eventual 2s" });
  await session.put(k, "x");
  assert.equal(text((await session.get(k)).value), "x");
  const { pool } = client.regions[0]!;
  const connection = await pool.take(performance.now() + 1000, undefined);
  const ask = (...words: string[]) => connection.sendCommand(words);
  const fresh = await connect("us-east").regions[0]!.pool.take(performance.now() + 10_000, undefined);
  assert.equal(String(await ask("RHEO", "SESSION", "GET")).length, String(await fresh.sendCommand(["RHEO", "SESSION", "GET"])).length, "a session is left");
  fresh.destroy();
  assert.equal(await ask("RHEO", "LEVEL"), "causal");
  assert.equal(await ask("RHEO", "STRATEGY"), "auto");
  for (const name of ["SLA", "FRESH", "WITHIN"]) assert.equal(await ask("RHEO", name), null);
  assert.equal(await ask("GET", k), null, "the connection is in its own keyspace again");
  pool.give(connection);
});

test("redis_client_keeps_its_commands", async () => {
  const [k, given] = [key("usual"), redis("us-east")];
  await given.connect();
  const client = new rheostat.Client(given);
  const session = client.session(KEYSPACE);
  const mine = session.redis;
  assert.equal(await mine.set(k, "text"), "OK");
  let before = session.token;
  assert.notEqual(before, "");
  assert.equal(await mine.get(k), "text");
  assert.deepEqual(await mine.mGet([k, `${k}no`]), ["text", null]);
  assert.equal(await mine.incrBy(`${k}n`, 3), 3);
  assert.equal(await mine.del(k), 1);
  assert.notEqual(session.token, before);
  await assert.rejects(mine.select(1), rheostat.Refused);
  for (const about of ["LEVEL strong", "AT -1s", "RECEIPT ON", "MONITOR LISTEN"]) {
    await assert.rejects(mine.sendCommand(["RHEO", ...about.split(" ")]), rheostat.Refused);
  }
  for (const about of [() => mine.watch(k), () => mine.unwatch(), () => mine.subscribe(k, () => undefined)]) await assert.rejects(about(), rheostat.Refused);
  before = session.token;
  assert.equal(await mine.withCommandOptions({ asap: true }).set(`${k}options`, "text"), "OK");
  assert.notEqual(session.token, before, "options do not lead out of the session");
  const buffers = mine.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  assert.deepEqual([await buffers.get(`${k}options`), await buffers.sendCommand(["GET", `${k}options`])], [Buffer.from("text"), Buffer.from("text")]);
  const tooLate = mine.withAbortSignal(AbortSignal.abort(new Error("too late")));
  await assert.rejects(tooLate.set(`${k}options`, "late"), { message: "too late" });
  assert.equal(await mine.get(`${k}options`), "text");
  before = session.token;
  await session.asCurrent(async () => {
    assert.equal(await client.redis.set(k, "again"), "OK");
    assert.equal(rheostat.currentSession(), session);
  });
  assert.notEqual(session.token, before);
  before = session.token;
  assert.equal(await client.redis.get(k), "again", "without a session");
  assert.equal(await client.redis.multi().get(k).execAsPipeline().then(([one]) => String(one)), "again");
  assert.equal(session.token, before);
  client.close();
  given.destroy();
});

test("pipeline_is_part_of_the_session", async () => {
  const session = connect("us-east").session(KEYSPACE);
  const [k, word] = [key("{pipe}a"), key("{pipe}b")];
  const fill = () => session.redis.multi().set(k, "1").set(word, "a word").incr(word).get(k);
  await assert.rejects(fill().execAsPipeline(), (error) => {
    assert.ok(error instanceof MultiErrorReply);
    assert.deepEqual(error.errorIndexes, [2]);
    assert.deepEqual([error.replies[0], error.replies[1], error.replies[3]], ["OK", "OK", "1"].map((one) => one as unknown));
    return true;
  });
  assert.notEqual(session.token, "");
  await assert.rejects(fill().exec(), rheostat.Refused);
  const before = session.token;
  assert.deepEqual(await session.redis.multi().set(k, "2").get(k).exec(), ["OK", "2"]);
  assert.notEqual(session.token, before);
});

test("foreign_token_is_refused", async () => {
  const [client, k] = [connect("us-east", { poolSize: 1 }), key("foreign")];
  const [other, own] = [client.session("eventual"), client.session(KEYSPACE)];
  await other.put(k, "there");
  await own.put(k, "before");
  const damaged = own.token.slice(0, -4) + (own.token.endsWith("0000") ? "1111" : "0000");
  for (const token of [other.token, damaged, "a word"]) {
    const session = client.resume(KEYSPACE, token);
    for (const operation of [() => session.put(k, "after"), () => session.get(k), () => session.check(), () => own.merge(token)]) {
      await assert.rejects(operation, rheostat.TokenError);
    }
    assert.equal(session.token, token);
  }
  assert.equal(text((await own.get(k)).value), "before");
});

/** A web application in a data center: PUT and GET of a key. */
async function web(place: Place) {
  const given = redis(place);
  await given.connect();
  const client = new rheostat.Client(given);
  const carry = rheostat.sessionMiddleware(client, KEYSPACE);
  const server = http.createServer((request: http.IncomingMessage & rheostat.WithSession, response) => {
    const serve = async () => {
      const { pathname, search } = new URL(request.url ?? "/", "http://localhost");
      if (request.method === "PUT") {
        await client.redis.set(pathname, search.slice(1));
        assert.equal(rheostat.currentSession(), request.rheostat);
        response.writeHead(204).end();
      } else {
        response.end((await client.redis.get(pathname)) ?? "");
      }
    };
    void carry(request, response, () => void serve());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  after(() => {
    server.closeAllConnections();
    server.close();
    client.close();
    given.destroy();
  });
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return (method: string, path: string, headers: Record<string, string> = {}) => fetch(base + path, { method, headers });
}

test("middleware_carries_the_session", async () => {
  const [east, eu] = [await web("us-east"), await web("eu")];
  let headers: Record<string, string> = {};
  for (let turn = 0; turn < 10; turn++) {
    const path = `/${key("web")}`;
    const wrote = await east("PUT", `${path}?${turn}`, headers);
    assert.equal(wrote.status, 204);
    headers = { [rheostat.SESSION_HEADER]: wrote.headers.get(rheostat.SESSION_HEADER) ?? "" };
    assert.equal(await (await eu("GET", path, headers)).text(), String(turn));
  }
});

test("middleware_refuses_a_foreign_token", async () => {
  const [east, path] = [await web("us-east"), `/${key("web")}`];
  for (const token of ["a word", "x".repeat(8000)]) {
    const refused = await east("PUT", `${path}?x`, { [rheostat.SESSION_HEADER]: token });
    assert.equal(refused.status, 400);
    assert.match(await refused.text(), /Rheostat-Session/);
  }
  // Node takes no header of this length; a server that does is answered likewise.
  let status = 0;
  const response = { writeHead: (said: number) => ((status = said), { end: () => undefined }) };
  const request = { headers: { "rheostat-session": "x".repeat(20_000) } };
  await rheostat.sessionMiddleware(connect("us-east"), KEYSPACE)(request as never, response as never, () => assert.fail("the handler ran"));
  assert.equal(status, 400);
  const begun = await east("GET", path);
  assert.equal(begun.status, 200);
  assert.equal(await begun.text(), "");
  assert.ok(begun.headers.get(rheostat.SESSION_HEADER));
});

test("level_per_call", async () => {
  const [session, k] = [connect("us-east").session(KEYSPACE), key("level")];
  await session.put(k, "x");
  const level = async (one = session) => (await one.get(k)).level;
  assert.equal(await level(), "causal");
  const eventual = session.withDial({ level: "eventual" });
  assert.equal(await level(eventual), "eventual");
  const { token } = session;
  await eventual.put(k, "y");
  assert.equal(eventual.token, session.token);
  assert.notEqual(session.token, token);
  assert.equal(await level(), "causal");
  session.setLevel("eventual");
  assert.deepEqual([await level(), await level()], ["eventual", "eventual"]);
  session.setLevel(undefined);
  assert.equal(await level(), "causal");
});

test("level_that_is_not_served_is_refused", async () => {
  const [client, k] = [connect("us-east"), key("strong")];
  const session = client.session(KEYSPACE);
  await assert.rejects(session.withDial({ level: "strong" }).put(k, "x"), (error) => error instanceof rheostat.Refused && /strong/.test(error.message));
  await assert.rejects(client.session("nowhere").put(k, "x"), rheostat.Refused);
  assert.equal((await session.get(k)).value, null);
});

test("service_level_says_what_was_reached", async () => {
  const [session, k] = [connect("us-east").session(KEYSPACE), key("sla")];
  await session.put(k, "x");
  session.setServiceLevel("strong 1s; causal 1s; eventual");
  const read = await session.get(k);
  assert.deepEqual([text(read.value), read.level, read.achieved?.entry], ["x", "causal", 2]);
  assert.ok((read.achieved?.usedUs ?? -1) >= 0);
  assert.deepEqual([read.achieved?.answeredIn, read.achieved?.dataCenters], ["us-east", undefined]);
  session.setServiceLevel(undefined);
  assert.equal((await session.get(k)).achieved, undefined);
  await assert.rejects(session.withDial({ serviceLevel: "strong soon" }).get(k), rheostat.Refused);
});

test("bounds_of_one_call", async (t) => {
  const [session, k] = [connect("eu").session(KEYSPACE), key("bounds")];
  await session.put(k, "x");
  cut(t, EAST_ALONE);
  await assert.rejects(session.withDial({ freshMs: 1, withinMs: 100 }).get(k), rheostat.Timeout);
  assert.equal(text((await session.get(k)).value), "x");
  // It may wait for longer than a reply may take.
  const hurried = connect(["eu", "us-west"], { replyTimeoutMs: 2000, readRetries: 0 }).session(KEYSPACE);
  await assert.rejects(hurried.withDial({ freshMs: 1, withinMs: 3000 }).get(k), rheostat.Timeout);
  assert.equal((await hurried.put(key("bounds"), "x")).origin, "eu");
});

test("quality_of_a_read", async () => {
  const [session, k] = [connect("us-east").session(KEYSPACE), key("quality")];
  const version = await session.put(k, "x");
  const read = await eventually("a bound", async () => {
    const seen = await session.get(k);
    return seen.stalenessMs !== undefined && seen;
  });
  assert.deepEqual([read.version, read.level, version.origin], [version, "causal", "us-east"]);
  assert.ok((read.stalenessMs ?? -1) >= 0);
  assert.deepEqual(rheostat.Version.parse(String(version)), version);
  assert.deepEqual(session.quality.version, version);
});

test("receipt_of_a_write", async () => {
  const session = connect("us-east").session(KEYSPACE);
  await session.put(key("receipt"), "x");
  assert.equal(await session.wait(2, 15_000), 2);
  const hurried = connect(["us-east", "eu"], { replyTimeoutMs: 2000, readRetries: 0 }).resume(KEYSPACE, session.token);
  // There are not so many, so it is answered when its time is over.
  for (const wait of [() => hurried.wait(9, 4000), () => hurried.redis.wait(9, 4000)]) assert.equal(await wait(), 2);
  assert.equal((await hurried.put(key("receipt"), "x")).origin, "us-east");
});

test("read_transaction_reads_one_snapshot", async () => {
  const client = connect("us-east");
  const pair = [key("{1}first"), key("{5}second")];
  let done = false;
  const write = async () => {
    const writer = client.session(KEYSPACE);
    for (let turn = 0; turn < 100; turn++) for (const k of pair) await writer.put(k, String(turn));
    done = true;
  };
  const read = async () => {
    while (!done) {
      const [first = -1, second = -1] = (await client.session(KEYSPACE).readTransaction(pair)).values.map((value) => Number(text(value) ?? -1));
      assert.ok(second <= first && first <= second + 1, `${first} ${second}`);
    }
  };
  await Promise.all([write(), read()]);
});

test("conditional_write", async () => {
  const [client, k] = [connect("us-east"), key("if")];
  const session = client.session("strong");
  await eventually("a leader", () => session.putIf(k, "a", "absent"));
  assert.equal(await session.putIf(k, "b", "absent"), undefined);
  assert.equal(await session.putIf(k, "b", { value: "x" }), undefined);
  assert.equal(text((await session.get(k)).value), "a");
  const version = await session.putIf(k, "b", { value: "a" });
  assert.ok(version);
  assert.deepEqual((await session.get(k)).version, version);
  await assert.rejects(client.session(KEYSPACE).putIf(k, "a", "absent"), rheostat.Refused);
  // Also where the application's client has numbers as texts.
  const texts = connect("us-east", {}, { commandOptions: { typeMapping: { [RESP_TYPES.NUMBER]: String } } }).session("strong");
  assert.equal(await texts.putIf(k, "c", { value: "x" }), undefined);
  assert.equal(await texts.delete(k), true);
});

test("counter_keeps_its_bounds", async () => {
  const [session, k] = [connect("us-east").session(KEYSPACE), key("{c}stock")];
  const stock = session.counter(k);
  await stock.create({ lower: 0, initial: 10 });
  await assert.rejects(stock.create(), rheostat.Refused);
  assert.equal(await stock.add(-1), 9);
  await assert.rejects(stock.add(-100), (error) => {
    assert.ok(error instanceof rheostat.NoRights && error instanceof ErrorReply);
    assert.deepEqual([error.key, error.value, error.direction, error.needed], [k, 9, "down", 100]);
    assert.ok((error.here ?? 100) + (error.elsewhere ?? 100) <= 9);
    return true;
  });
  await eventually("all rights", async () => (await stock.global().add(-9)) === 0);
  await assert.rejects(stock.global().add(-1), rheostat.NoRights);
  const other = session.counter(key("{c}other"));
  await other.create({ lower: 0, upper: 100, placement: [1, 0, 0], initial: 5 });
  assert.deepEqual(await other.transfer(k, 2), [3, 2]);
  await assert.rejects(other.transfer(k, 4), rheostat.NoRights);
  const view = await other.look();
  assert.deepEqual([view.value, view.lower, view.upper], [3, 0, 100]);
  assert.deepEqual(view.rights.map((right) => right.dataCenter).sort(), [...PLACES].sort());
});

test("counter_rights_move", async () => {
  const [session, k] = [connect("us-east").session(KEYSPACE), key("moved")];
  await session.counter(k).create({ lower: 0, initial: 10, placement: [1, 0, 0] });
  await session.counter(k).moveRights("eu", "down", 4);
  const there = session.at(connect("eu"));
  await eventually("the rights", async () => (await there.counter(k).add(-4)) === 6);
});

test("counter_update_is_made_once", async () => {
  const k = key("once");
  const between = await proxy(port("us-east"), "COUNTER\r\n$3\r\nADD", 1);
  const session = connect(between.port).session(KEYSPACE);
  await session.counter(k).create({ lower: 0, initial: 10 });
  assert.equal(await session.counter(k).add(-1), 9);
  assert.equal(between.seen, 2);
  assert.equal(await session.counter(k).add(-1), 8);
  assert.equal((await session.counter(k).look()).value, 8);
});

test("counter_update_stays_in_its_region", async () => {
  const k = key("stays");
  const between = await proxy(port("us-east"), "COUNTER\r\n$3\r\nADD", 1);
  between.ends = true;
  const session = connect([between.port, "eu"]).session(KEYSPACE);
  await session.counter(k).create({ lower: 0, initial: 12 });
  assert.equal(await session.wait(2, 15_000), 2);
  await assert.rejects(session.counter(k).add(-1), (error) => error instanceof rheostat.Unreachable && !error.nothingSent);
  assert.equal(between.seen, 1);
  const home = session.at(connect("us-east"));
  assert.equal((await home.counter(k).look()).value, 11);
  await home.put(`${k}after`, "x");
  assert.equal((await home.at(connect("eu")).counter(k).look()).value, 11);
});

test("counter_update_in_doubt_stays_in_doubt", async () => {
  const plain = await plainRedis(false, 0, undefined, true);
  const session = connect(plain.port, {}, { RESP: 2 }).session(KEYSPACE);
  await assert.rejects(session.counter("k").add(-1), (error) => error instanceof rheostat.Unreachable && !error.nothingSent);
  assert.ok(plain.updates > 1);
  await assert.rejects(session.counter("k").add(-1), rheostat.Busy);
});

test("write_is_not_sent_twice", async () => {
  const k = key("twice");
  const between = await proxy(port("us-east"), "$3\r\nSET\r\n", 1);
  const session = connect([between.port, "eu"]).session(KEYSPACE);
  await session.get(k);
  await assert.rejects(session.put(k, "x"), (error) => error instanceof rheostat.Unreachable && !error.nothingSent);
  assert.equal(between.seen, 1);
  await session.get(k);
});

test("failover_to_another_region", async (t) => {
  const [client, k] = [connect(["us-west", "eu"], { returnAfterMs: 50 }), key("failover")];
  const session = client.session(KEYSPACE);
  assert.equal((await session.put(k, "from the west")).origin, "us-west");
  assert.equal(await session.wait(2, 15_000), 2);
  t.after(startAgain);
  tell("us-west", "SIGKILL");
  assert.equal(text((await session.get(k)).value), "from the west");
  assert.equal((await session.put(k, "from eu")).origin, "eu");
  assert.equal(text((await session.get(k)).value), "from eu");
  startAgain();
  await eventually("the way back", async () => (await session.put(k, "home")).origin === "us-west");
  assert.equal(text((await session.get(k)).value), "home");
});

test("lost_idle_connections_are_made_anew", async () => {
  const [k, west] = [key("idle"), await proxy(port("us-west"))];
  const client = connect([west.port, "eu"]);
  const sessions = Array.from({ length: 5 }, () => client.session(KEYSPACE));
  await Promise.all(sessions.map((session) => session.put(k, "before")));
  for (const session of sessions) {
    west.drop();
    assert.equal((await session.put(k, "after")).origin, "us-west");
    west.drop();
    assert.equal(text((await session.get(k)).value), "after");
    assert.equal(client.regions[0]!.avoidedUntil, 0, "passed over");
  }
});

test("hung_node_is_passed_over", async () => {
  const [k, west] = [key("hung"), await proxy(port("us-west"))];
  const session = connect([west.port, "eu"], { replyTimeoutMs: 2000 }).session(KEYSPACE);
  assert.equal((await session.put(k, "from the west")).origin, "us-west");
  west.hangs = true;
  assert.equal(text((await session.get(k)).value), "from the west");
  assert.equal((await session.put(k, "from eu")).origin, "eu");
  // So is one that hangs when the connection to it is made.
  const late = connect([west.port, "eu"], { replyTimeoutMs: 2000 }).session(KEYSPACE);
  assert.equal((await late.put(k, "from eu too")).origin, "eu");
  // Connections that are being made to it do not hold up those who find no place.
  const client = connect([west.port, "eu"], { poolSize: 2, deadlineMs: 2000, replyTimeoutMs: 8000 });
  const hanging = [1, 2].map(() => client.session(KEYSPACE).put(k, "from eu at last"));
  await eventually("two connections", async () => client.regions[0]!.pool.size === 2);
  assert.equal((await client.session(KEYSPACE).put(k, "from eu first")).origin, "eu");
  assert.deepEqual((await Promise.all(hanging)).map(({ origin }) => origin), ["eu", "eu"]);
});

test("opening_node_is_passed_over", async () => {
  for (const greets of [[], ["AUTH", "CLIENT"]]) {
    const [k, west, eu] = [key("opening"), await plainRedis(false, 0, greets), connect("eu").session(KEYSPACE)];
    await eu.counter(`${k}count`).create({ lower: 0, initial: 12 });
    await eu.put(k, "there");
    const operations: ((session: rheostat.Session<any>) => Promise<boolean>)[] = [
      async (session) => (await session.put(`${k}put`, "x")).origin === "eu",
      async (session) => text((await session.get(k)).value) === "there",
      async (session) => (await session.counter(`${k}count`).add(-1)) < 12,
    ];
    const once = { readRetries: 0 };
    for (const operation of operations) {
      const session = connect([west.port, "eu"], once).session(KEYSPACE);
      assert.ok(await operation(session));
      const asked = west.commands.length;
      assert.ok(await operation(session));
      assert.equal(west.commands.length, asked);
    }
    (await rheostat.Violations.listen(connect([west.port, "eu"], once))).close();
    const alone = connect(west.port, once);
    for (const failing of [...operations, () => rheostat.Violations.listen(alone)]) {
      await assert.rejects(failing(alone.session(KEYSPACE)), (error) => {
        assert.ok(error instanceof rheostat.Unreachable && error.nothingSent, String(error));
        return error.message.includes(String(west.port)) && error.message.includes("opening its data");
      });
    }
    assert.ok(!west.commands.includes("SET"));
  }
});

test("dead_node_is_a_clear_error", async () => {
  const address = await unusedPort();
  const session = connect(address, { readRetries: 1 }).session(KEYSPACE);
  for (const operation of [() => session.put("k", "x"), () => session.get("k"), () => session.counter("k").add(1)]) {
    await assert.rejects(operation, (error) => error instanceof rheostat.Unreachable && error.nothingSent && error.message.includes(String(address)));
  }
});

test("siblings_are_resolved", async () => {
  const [client, k] = [connect("us-east"), key("side")];
  const [one, other] = [client.session("quorum"), client.session("quorum")];
  const { context } = await one.siblings(k);
  await one.replace(k, "milk", context);
  await other.replace(k, "bread", context);
  const values = async (session = one) => (await session.siblings(k)).values.map(String).sort();
  assert.deepEqual(await values(), ["bread", "milk"]);
  assert.equal(text(await one.resolve(k, (both) => both.map(String).sort().join("+"))), "bread+milk");
  assert.deepEqual(await values(other), ["bread+milk"]);
  assert.equal(text(await one.resolve(k, () => assert.fail("there is one"))), "bread+milk");
});

test("wrong_password_is_a_clear_error", async () => {
  await assert.rejects(connect("us-east", {}, { password: "guess" }).session(KEYSPACE).get("k"), rheostat.Unauthenticated);
  // A right one ends the count of wrong ones.
  await connect("us-east").session(KEYSPACE).get("k");
  // Connections that have to show it again, as after a change of users, are made anew.
  for (const operation of [(session: rheostat.Session<any>) => session.put(key("again"), "x"), (session: rheostat.Session<any>) => session.get("k")]) {
    const client = connect("us-east", { poolSize: 2 });
    const { pool } = client.regions[0]!;
    const both = await Promise.all([1, 2].map(() => pool.take(performance.now() + 20_000, undefined)));
    for (const connection of both) {
      await connection.sendCommand(["RESET"]);
      pool.give(connection);
    }
    await operation(client.session(KEYSPACE));
  }
});

test("pool_without_a_connection_is_busy", async () => {
  const client = connect("us-east", { poolSize: 1, deadlineMs: 100 });
  const [session, { pool }] = [client.session(KEYSPACE), client.regions[0]!];
  const busy = await pool.take(performance.now() + 1000, undefined);
  await assert.rejects(session.put("k", "x"), rheostat.Busy);
  pool.give(busy);
  await session.put(key("busy"), "x");
  // Times that no timer takes are no short ones.
  const patient = connect("us-east", { poolSize: 1, deadlineMs: Infinity });
  const held = await patient.regions[0]!.pool.take(performance.now() + 10_000, undefined);
  const written = patient.session(KEYSPACE).put(key("busy"), "x");
  await Promise.race([written, sleep(100)]);
  patient.regions[0]!.pool.give(held);
  await written;
});

test("server_without_rheo_is_a_clear_error", async () => {
  const plain = await plainRedis();
  const session = connect(plain.port, {}, { RESP: 2 }).session(KEYSPACE);
  for (const operation of [() => session.put("k", "x"), () => session.get("k")]) {
    await assert.rejects(operation, (error) => error instanceof rheostat.NotRheostat && error instanceof rheostat.Refused);
  }
  assert.ok(!plain.commands.includes("SET"));
});

test("cancelled_operation_leaves_the_pool_clean", async (t) => {
  const [k, east, eu] = [key("cancel"), connect("us-east").session(KEYSPACE), connect("eu", { poolSize: 1 })];
  cut(t, EAST_ALONE);
  await east.put(k, "x");
  const [waiting, other] = [eu.resume(KEYSPACE, east.token), eu.session(KEYSPACE)];
  await other.put(`${k}2`, "mine");
  const giveUp = new AbortController();
  void sleep(100).then(() => giveUp.abort());
  await assert.rejects(waiting.withSignal(giveUp.signal).get(k), { name: "AbortError" });
  assert.equal(text((await other.get(`${k}2`)).value), "mine");
  assert.equal(waiting.token, east.token);
  const hurried = connect("eu", { poolSize: 1, replyTimeoutMs: 2000, readRetries: 0 });
  await assert.rejects(hurried.resume(KEYSPACE, east.token).get(k), rheostat.Timeout);
  assert.equal(text((await hurried.resume(KEYSPACE, other.token).get(`${k}2`)).value), "mine");
  // Between two tries, too, it is the signal's reason.
  const plain = await plainRedis(false, 0, undefined, true);
  const slow = connect(plain.port, { retryPauseMs: 60_000, deadlineMs: 600_000 }, { RESP: 2 });
  const [pausing, why] = [new AbortController(), new Error("enough")];
  const given = assert.rejects(slow.session(KEYSPACE).withSignal(pausing.signal).counter("k").add(-1), (error) => error === why);
  await eventually("the pause", async () => plain.updates === 1 && slow.regions[0]!.pool.size === 0);
  pausing.abort(why);
  await given;
  // So it is while a connection is made, and while another operation of the session goes on.
  const silent = await proxy(port("eu"));
  silent.hangs = true;
  const [nowhere, first, second] = [connect(silent.port), new AbortController(), new AbortController()];
  const session = nowhere.session(KEYSPACE);
  const [goesOn, waits] = [first, second].map(({ signal }) => assert.rejects(session.withSignal(signal).get(k), (error) => error === why));
  second.abort(why);
  await waits;
  await eventually("the connection", async () => nowhere.regions[0]!.pool.size === 1);
  first.abort(why);
  await goesOn;
  silent.drop();
});

/** A predicate that two keys must not be 1 at once; its name, and the keys. */
function twoKeys(word: string): [string, string, string] {
  const [name, one, other] = [key(word).replaceAll(":", "_"), key(word), key(word)];
  watch(name, `!(${one} = 1 && ${other} = 1)`);
  return [name, one, other];
}

async function violate(one: string, other: string): Promise<void> {
  await connect("us-east").session("eventual").put(one, "1");
  await connect("eu").session("eventual").put(other, "1");
}

async function until<S extends rheostat.Said>(violations: rheostat.Violations, what: string, wanted: (said: rheostat.Said) => said is S): Promise<S> {
  for (const end = performance.now() + 60_000; performance.now() < end; ) {
    const said = await violations.next(end - performance.now());
    if (said && wanted(said)) return said;
  }
  return assert.fail(`never told: ${what}`);
}

const certain = (said: rheostat.Said): said is rheostat.Violation => said.kind === "violation" && said.certain;
const silence = (said: rheostat.Said): said is rheostat.Silence => said.kind === "silence";
const gap = (said: rheostat.Said): said is rheostat.Missed => said.kind === "missed";

/** Waits for violations in vain. */
async function nothingWithin(violations: rheostat.Violations, withinMs: number): Promise<void> {
  for (const end = performance.now() + withinMs; performance.now() < end; ) {
    const said = await violations.next(end - performance.now());
    assert.ok(said === undefined || said.kind === "missed", JSON.stringify(said));
  }
}

test("violation_is_told_with_its_evidence", async (t) => {
  const [[name, one, other], [elsewhere]] = [twoKeys("told"), twoKeys("elsewhere")];
  const violations = await rheostat.Violations.listen(connect("eu"), name);
  const others = await rheostat.Violations.listen(connect("eu"), elsewhere);
  t.after(() => [violations, others].forEach((each) => each.close()));
  const first = await connect("us-east").session("eventual").put(one, "1");
  const second = await connect("us-west").session("eventual").put(other, "1");
  const told = await until(violations, "the violation", certain);
  assert.deepEqual([told.monitor, told.keyspace], [name, "eventual"]);
  assert.ok(told.node.endsWith("-1") && told.number > 0 && Math.abs(told.atMs - Date.now()) < 60_000 && told.notBefore.millis < told.atMs);
  assert.deepEqual(told.evidence.map((state) => String(state.key)).sort(), [one, other].sort());
  for (const state of told.evidence) {
    const [place, version] = String(state.key) === one ? ["us-east", first] : ["us-west", second];
    assert.deepEqual([text(state.value), state.dataCenter], ["1", place]);
    assert.deepEqual([state.version?.millis, state.version?.counter], [version.millis, version.counter]);
    assert.ok(told.notBefore.millis < state.from.millis + 1000 && state.from.millis <= told.atMs);
    assert.ok(state.until === undefined || state.until.millis >= state.from.millis);
  }
  await nothingWithin(others, 200);
});

test("alarms_come_again_from_another_region", async (t) => {
  const [name, one, other] = twoKeys("again");
  const violations = await rheostat.Violations.listen(connect(["us-west", "eu"], { returnAfterMs: 50 }), name);
  t.after(() => violations.close());
  t.after(startAgain);
  tell("us-west", "SIGKILL");
  assert.match((await until(violations, "silence", silence)).why, /127\.0\.0\.1/);
  const before = violations.missed;
  await until(violations, "that it goes on", gap);
  assert.ok(violations.missed > before);
  startAgain();
  await violate(one, other);
  await until(violations, "the violation", certain);
});

test("silent_node_is_passed_over", async (t) => {
  const [name, one, other] = twoKeys("silent");
  const west = await proxy(port("us-west"));
  const violations = await rheostat.Violations.listen(connect([west.port, "eu"], { silenceAfterMs: 4000, replyTimeoutMs: 2000 }), name);
  t.after(() => violations.close());
  // It is asked whether it is there, and says so.
  await nothingWithin(violations, 6400);
  west.hangs = true;
  await until(violations, "silence", silence);
  await until(violations, "that it goes on", gap);
  await violate(one, other);
  await until(violations, "the violation", certain);
});

test("closing_ends_the_wait", async () => {
  const [name] = twoKeys("close");
  const one = redis("eu");
  await one.connect();
  const connections = async () => new Set<string>(String(await one.sendCommand(["CLIENT", "LIST"])).match(/^id=\d+/gm) ?? []);
  // Clients of other tests have ended theirs, and the node sees it when it sees it.
  const before = await connections();
  const violations = await rheostat.Violations.listen(connect("eu"), name);
  const own = [...(await connections())].filter((id) => !before.has(id));
  assert.equal(own.length, 1, own.join(" "));
  await nothingWithin(violations, 200);
  void sleep(200).then(() => violations.close());
  for await (const said of violations) assert.equal(said.kind, "missed");
  assert.equal(await violations.next(), undefined);
  violations.close();
  await eventually("one connection less", async () => !(await connections()).has(own[0]!));
  one.destroy();
});

test("listening_is_refused_with_a_typed_error", async () => {
  for (const options of [{ username: "writer", password: "only writes" }, { password: "guess" }]) {
    await assert.rejects(rheostat.Violations.listen(connect("us-east", {}, options)), rheostat.Unauthenticated);
  }
  // A right one ends the count of wrong ones.
  await connect("us-east").session(KEYSPACE).get("k");
  const [plain, old, nobody] = [await plainRedis(true), await plainRedis(), await unusedPort()];
  await assert.rejects(rheostat.Violations.listen(connect(plain.port)), rheostat.NotRheostat);
  await assert.rejects(rheostat.Violations.listen(connect(old.port)), (error) => error instanceof rheostat.Refused && error.message.includes("RESP3"));
  await assert.rejects(
    rheostat.Violations.listen(connect(nobody)),
    (error) => error instanceof rheostat.Unreachable && error.nothingSent && error.message.includes(String(nobody)),
  );
});

test("refusal_later_ends_the_subscription", async (t) => {
  const plain = await plainRedis(true, 1);
  const violations = await rheostat.Violations.listen(connect(plain.port, { silenceAfterMs: 4000 }), "m");
  t.after(() => violations.close());
  assert.equal((await violations.next(60_000))?.kind, "violation");
  assert.match((await until(violations, "silence", silence)).why, /Authentication/);
  await assert.rejects(violations.next(60_000), rheostat.Unauthenticated);
  await assert.rejects(violations.next(100), rheostat.Unauthenticated);
});

test("slow_listener_is_told_what_was_left_out", async (t) => {
  const plain = await plainRedis(true, 3000);
  // Times that no timer takes are no short ones.
  const violations = await rheostat.Violations.listen(connect(plain.port, { silenceAfterMs: Infinity, replyTimeoutMs: Infinity }), "m");
  t.after(() => violations.close());
  await eventually("all are sent", async () => plain.told);
  // They are in the socket now, and read as soon as this thread does nothing else.
  await sleep(1000);
  let [told, leftOut] = [0, 0];
  while (told + leftOut < 3000) {
    const said = await until(violations, "all", (said): said is rheostat.Said => said !== undefined);
    if (said.kind === "violation") {
      assert.equal(said.number, told + leftOut);
      told += 1;
    } else leftOut += Number(/(\d+) events were left out/.exec(said.why)?.[1]);
  }
  assert.ok(told + leftOut === 3000 && leftOut > 0, `${told} and ${leftOut}`);
});
