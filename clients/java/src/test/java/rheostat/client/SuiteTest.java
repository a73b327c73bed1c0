package rheostat.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static rheostat.client.Cluster.EAST_ALONE;
import static rheostat.client.Cluster.KEYSPACE;
import static rheostat.client.Cluster.PASSWORD;
import static rheostat.client.Cluster.PLACES;
import static rheostat.client.Cluster.WITHIN;
import static rheostat.client.Cluster.connect;
import static rheostat.client.Cluster.eventually;
import static rheostat.client.Cluster.key;
import static rheostat.client.Cluster.pool;
import static rheostat.client.Cluster.port;

import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisDataException;

/** The cases of ../../suite/suite.toml. */
class SuiteTest {
  @BeforeAll
  static void need() {
    Cluster.need();
  }

  private static Object ask(Connection connection, Object... words) {
    return connection.executeCommand(Command.of(words).arguments());
  }

  private static long idOf(Session session) {
    return (Long) session.redis().executeCommand(new CommandArguments(Protocol.Command.CLIENT).add("ID"));
  }

  @Test
  void session_waits_in_another_region() throws Exception {
    String k = key("waits");
    Client eu = connect("eu");
    Session session = connect("us-east").session(KEYSPACE);
    try (Cluster.Cut cut = new Cluster.Cut(EAST_ALONE)) {
      session.put(k, "here");
      Session elsewhere = eu.resume(KEYSPACE, session.token());
      assertThrows(RheostatException.Timeout.class, () -> elsewhere.withDial(WITHIN).get(k));
      assertNull(eu.session(KEYSPACE).get(k).value());
      cut.close();
      assertEquals("here", eventually("the write", () -> elsewhere.get(k).text()));
    }
  }

  @Test
  void token_resumes_in_another_client() {
    Session session = connect("us-east").session(KEYSPACE);
    List<Client> others = PLACES.stream().map(Cluster::connect).toList();
    for (int turn = 0; turn < 10; turn++) {
      String k = key("token");
      session.put(k, "" + turn);
      for (Client other : others) {
        assertEquals("" + turn, other.resume(KEYSPACE, session.token()).get(k).text());
      }
    }
  }

  @Test
  void session_is_carried_over_connections() {
    String k = key("pool");
    Client client = connect("us-east");
    Session session = client.session(KEYSPACE);
    session.put(k, "first");
    long first = idOf(session);
    String before = session.token();
    try (Connection busy = Cluster.taken(client)) {
      assertEquals(first, ask(busy, "CLIENT", "ID"));
      session.put(k + "2", "second");
      assertNotEquals(first, idOf(session));
      assertNotEquals(before, session.token());
      assertEquals("first", session.get(k).text());
      assertEquals("second", session.get(k + "2").text());
    }
  }

  @Test
  void no_effect_before_its_cause() throws Exception {
    String photo = key("photo");
    String comment = key("comment");
    Client eu = connect("eu");
    try (Cluster.Cut cut = new Cluster.Cut(new String[] {"us-east", "eu"})) {
      Session session = connect("us-east").session(KEYSPACE);
      session.put(photo, "sunset");
      Session moved = session.at(connect("us-west"));
      assertEquals("sunset", moved.get(photo).text());
      moved.put(comment, "wow");
      AtomicInteger looks = new AtomicInteger();
      eventually("photo and comment", () -> {
        List<String> seen = eu.session(KEYSPACE).readTransaction(List.of(comment, photo)).texts();
        assertTrue(seen.get(0) == null || seen.get(1) != null, "an effect without its cause");
        if (looks.incrementAndGet() == 20) {
          cut.close();
        }
        return Arrays.asList("wow", "sunset").equals(seen);
      });
    }
  }

  @Test
  void merge_joins_two_sessions() throws Exception {
    String k = key("merge");
    Session writer = connect("us-east").session(KEYSPACE);
    Session reader = connect("eu").session(KEYSPACE);
    reader.put(key("own"), "mine");
    try (Cluster.Cut cut = new Cluster.Cut(EAST_ALONE)) {
      writer.put(k, "yours");
      assertNull(reader.get(k).value());
      reader.merge(writer.token());
      assertThrows(RheostatException.Timeout.class, () -> reader.withDial(WITHIN).get(k));
      cut.close();
      assertEquals("yours", eventually("the write", () -> reader.get(k).text()));
    }
  }

  private static void together(int threads, Callable<Void> work) throws Exception {
    ExecutorService executor = Executors.newFixedThreadPool(threads);
    try {
      for (Future<Void> done : executor.invokeAll(Collections.nCopies(threads, work))) {
        done.get();
      }
    } finally {
      executor.shutdownNow();
    }
  }

  @Test
  void concurrent_use_of_one_session() throws Exception {
    Session session = connect("us-east").session(KEYSPACE);
    List<String> keys = Collections.synchronizedList(new ArrayList<>());
    together(20, () -> {
      String k = key("together");
      keys.add(k);
      for (int turn = 0; turn < 5; turn++) {
        session.put(k, "" + turn);
        assertEquals("" + turn, session.get(k).text());
      }
      return null;
    });
    assertEquals(Collections.nCopies(20, "4"), connect("eu").resume(KEYSPACE, session.token()).readTransaction(keys).texts());
  }

  @Test
  void pool_of_fifty_connections() throws Exception {
    JedisPooled fifty = pool("us-east");
    Client client = new Client(fifty);
    together(50, () -> {
      Session session = client.session(KEYSPACE);
      String k = key("fifty");
      for (int turn = 0; turn < 10; turn++) {
        session.put(k, "" + turn);
        assertEquals("" + turn, session.get(k).text());
      }
      return null;
    });
    assertTrue(fifty.getPool().getCreatedCount() <= 50);
  }

  @Test
  void nothing_of_a_session_stays_on_a_connection() {
    Client client = new Client(pool(port("us-east"), 1, PASSWORD, 20_000, null));
    String k = key("stays");
    Dial dial = new Dial("eventual", "coordinated", Duration.ofMinutes(1), Duration.ofSeconds(5), "eventual 2s", null, null);
    client.session(KEYSPACE).put(key("seen"), "x");
    Session session = client.session("eventual").withDial(dial);
    session.put(k, "x");
    assertEquals("x", session.get(k).text());
    try (Connection connection = Cluster.taken(client)) {
      try (Connection fresh = Cluster.taken(connect("us-east"))) {
        assertEquals(Replies.text(ask(fresh, "RHEO", "SESSION", "GET")).length(), Replies.text(ask(connection, "RHEO", "SESSION", "GET")).length());
      }
      assertEquals("causal", Replies.text(ask(connection, "RHEO", "LEVEL")));
      assertEquals("auto", Replies.text(ask(connection, "RHEO", "STRATEGY")));
      for (String name : List.of("SLA", "FRESH", "WITHIN")) {
        assertNull(ask(connection, "RHEO", name));
      }
      assertNull(ask(connection, "GET", k), "the connection is in its own keyspace again");
    }
  }

  @Test
  void redis_client_keeps_its_commands() {
    Client client = connect("us-east");
    String k = key("usual");
    Session session = client.session(KEYSPACE);
    UnifiedJedis mine = session.redis();
    assertEquals("OK", mine.set(k, "text"));
    String before = session.token();
    assertFalse(before.isEmpty());
    assertEquals("text", mine.get(k));
    assertEquals(Arrays.asList("text", null), mine.mget(k, k + "no"));
    assertEquals(3, mine.incrBy(k + "n", 3));
    assertEquals(1, mine.del(k));
    assertNotEquals(before, session.token());
    for (CommandArguments refused : List.of(
        new CommandArguments(Protocol.Command.SELECT).add("1"),
        Command.of("RHEO", "LEVEL", "strong").arguments(),
        Command.of("RHEO", "AT", "-1s").arguments(),
        Command.of("RHEO", "RECEIPT", "ON").arguments(),
        Command.of("RHEO", "MONITOR", "LISTEN").arguments())) {
      assertThrows(RheostatException.Refused.class, () -> mine.executeCommand(refused));
    }
    before = session.token();
    try (Session.Scope scope = session.asCurrent()) {
      assertEquals("OK", client.redis().set(k, "again"));
      assertSame(session, Client.currentSession());
    }
    assertNotEquals(before, session.token());
    before = session.token();
    assertEquals("again", client.redis().get(k), "without a session");
    assertEquals(before, session.token());
    assertNull(Client.currentSession());
  }

  @Test
  void pipeline_is_part_of_the_session() {
    Session session = connect("us-east").session(KEYSPACE);
    String k = key("{pipe}a");
    String word = key("{pipe}b");
    Response<String> set;
    Response<Long> wrong;
    Response<String> got;
    try (AbstractPipeline pipe = session.redis().pipelined()) {
      set = pipe.set(k, "1");
      pipe.set(word, "a word");
      wrong = pipe.incr(word);
      got = pipe.get(k);
    }
    assertEquals("OK", set.get());
    assertThrows(JedisDataException.class, wrong::get);
    assertEquals("1", got.get());
    String before = session.token();
    assertFalse(before.isEmpty());
    try (AbstractTransaction refused = session.redis().multi()) {
      refused.set(word, "a word");
      refused.incr(word);
      assertThrows(RheostatException.Refused.class, refused::exec);
    }
    try (AbstractTransaction step = session.redis().multi()) {
      step.set(k, "2");
      step.get(k);
      assertEquals(List.of("OK", "2"), step.exec());
    }
    assertNotEquals(before, session.token());
  }

  @Test
  void foreign_token_is_refused() {
    Client client = new Client(pool(port("us-east"), 1, PASSWORD, 20_000, null));
    String k = key("foreign");
    Session other = client.session("eventual");
    Session own = client.session(KEYSPACE);
    other.put(k, "there");
    own.put(k, "before");
    String good = own.token();
    String damaged = good.substring(0, good.length() - 4) + (good.endsWith("0000") ? "1111" : "0000");
    for (String token : List.of(other.token(), damaged, "a word")) {
      Session session = client.resume(KEYSPACE, token);
      List<Executable> operations = List.of(() -> session.put(k, "after"), () -> session.get(k), session::check, () -> own.merge(token));
      operations.forEach(operation -> assertThrows(RheostatException.Token.class, operation));
      assertEquals(token, session.token());
    }
    assertEquals("before", own.get(k).text());
  }

  private interface Web {
    HttpResponse<String> ask(String method, String path, Map<String, String> headers) throws Exception;
  }

  /** A web application in a data center: PUT and GET of a key. */
  private static Web web(String place) throws Exception {
    Client client = connect(place);
    HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.createContext("/", exchange -> {
      byte[] body = {};
      String path = exchange.getRequestURI().getPath();
      if (exchange.getRequestMethod().equals("PUT")) {
        client.redis().set(path, exchange.getRequestURI().getQuery());
      } else {
        String found = client.redis().get(path);
        body = found == null ? body : found.getBytes(StandardCharsets.UTF_8);
      }
      exchange.sendResponseHeaders(200, body.length == 0 ? -1 : body.length);
      exchange.getResponseBody().write(body);
      exchange.close();
    }).getFilters().add(new SessionFilter(client, KEYSPACE));
    server.start();
    HttpClient http = HttpClient.newHttpClient();
    String base = "http://127.0.0.1:" + server.getAddress().getPort();
    return (method, path, headers) -> {
      HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(base + path)).method(method, HttpRequest.BodyPublishers.noBody());
      headers.forEach(request::header);
      return http.send(request.build(), HttpResponse.BodyHandlers.ofString());
    };
  }

  @Test
  void middleware_carries_the_session() throws Exception {
    Web east = web("us-east");
    Web eu = web("eu");
    Map<String, String> headers = Map.of();
    for (int turn = 0; turn < 10; turn++) {
      String path = "/" + key("web");
      HttpResponse<String> wrote = east.ask("PUT", path + "?" + turn, headers);
      assertEquals(200, wrote.statusCode());
      headers = Map.of(Session.HEADER, wrote.headers().firstValue(Session.HEADER).orElseThrow());
      assertEquals("" + turn, eu.ask("GET", path, headers).body());
    }
  }

  @Test
  void middleware_refuses_a_foreign_token() throws Exception {
    Web east = web("us-east");
    String path = "/" + key("web");
    for (String token : List.of("a-word", "x".repeat(20_000))) {
      HttpResponse<String> refused = east.ask("PUT", path + "?x", Map.of(Session.HEADER, token));
      assertEquals(400, refused.statusCode());
      assertTrue(refused.body().contains(Session.HEADER));
    }
    HttpResponse<String> begun = east.ask("GET", path, Map.of());
    assertEquals(200, begun.statusCode());
    assertEquals("", begun.body());
    assertTrue(begun.headers().firstValue(Session.HEADER).isPresent());
  }

  @Test
  void level_per_call() {
    Session session = connect("us-east").session(KEYSPACE);
    String k = key("level");
    session.put(k, "x");
    assertEquals("causal", session.get(k).level());
    Session eventual = session.withDial(Dial.NONE.withLevel("eventual"));
    assertEquals("eventual", eventual.get(k).level());
    String before = session.token();
    eventual.put(k, "y");
    assertEquals(session.token(), eventual.token());
    assertNotEquals(before, session.token());
    assertEquals("causal", session.get(k).level());
    session.setLevel("eventual");
    assertEquals("eventual", session.get(k).level());
    assertEquals("eventual", session.get(k).level());
    session.setLevel(null);
    assertEquals("causal", session.get(k).level());
  }

  @Test
  void level_that_is_not_served_is_refused() {
    Client client = connect("us-east");
    Session session = client.session(KEYSPACE);
    String k = key("strong");
    Session strong = session.withDial(Dial.NONE.withLevel("strong"));
    assertTrue(assertThrows(RheostatException.Refused.class, () -> strong.put(k, "x")).getMessage().contains("strong"));
    assertThrows(RheostatException.Refused.class, () -> client.session("nowhere").put(k, "x"));
    assertNull(session.get(k).value());
  }

  @Test
  void service_level_says_what_was_reached() {
    Session session = connect("us-east").session(KEYSPACE);
    String k = key("sla");
    session.put(k, "x");
    session.setServiceLevel("strong 1s; causal 1s; eventual");
    Read read = session.get(k);
    assertEquals("x", read.text());
    assertEquals("causal", read.level());
    assertEquals(2, read.achieved().entry());
    assertFalse(read.achieved().used().isNegative());
    assertEquals("us-east", read.achieved().answeredIn());
    assertNull(read.achieved().dataCenters());
    session.setServiceLevel(null);
    assertNull(session.get(k).achieved());
    assertThrows(RheostatException.Refused.class, () -> session.withDial(Dial.NONE.withServiceLevel("strong soon")).get(k));
  }

  @Test
  void bounds_of_one_call() {
    Session session = connect("eu").session(KEYSPACE);
    String k = key("bounds");
    session.put(k, "x");
    Session bounded = session.withDial(Dial.NONE.withFresh(Duration.ofMillis(1)).withWithin(Duration.ofMillis(100)));
    try (Cluster.Cut cut = new Cluster.Cut(EAST_ALONE)) {
      assertThrows(RheostatException.Timeout.class, () -> bounded.get(k));
      assertEquals("x", session.get(k).text());
      // It may wait for longer than a reply may take.
      Client client = new Client(Options.DEFAULT.withReadRetries(0), pool(port("eu"), 8, PASSWORD, 2000, null), pool("us-west"));
      Session hurried = client.session(KEYSPACE);
      Session longer = hurried.withDial(Dial.NONE.withFresh(Duration.ofMillis(1)).withWithin(Duration.ofSeconds(3)));
      assertThrows(RheostatException.Timeout.class, () -> longer.get(k));
      assertEquals("eu", hurried.put(key("bounds"), "x").origin());
    }
  }

  @Test
  void quality_of_a_read() throws Exception {
    Session session = connect("us-east").session(KEYSPACE);
    String k = key("quality");
    Version version = session.put(k, "x");
    Read read = eventually("a bound", () -> {
      Read seen = session.get(k);
      return seen.staleness() == null ? null : seen;
    });
    assertEquals(version, read.version());
    assertEquals("us-east", version.origin());
    assertEquals("causal", read.level());
    assertFalse(read.staleness().isNegative());
    assertEquals(version, Version.parse(version.toString()));
    assertEquals(version, session.quality().version());
  }

  @Test
  void receipt_of_a_write() {
    Session session = connect("us-east").session(KEYSPACE);
    session.put(key("receipt"), "x");
    assertEquals(2, session.waitFor(2, Duration.ofSeconds(15)));
    Client client = new Client(Options.DEFAULT.withReadRetries(0), pool(port("us-east"), 8, PASSWORD, 2000, null), pool("eu"));
    Session hurried = client.resume(KEYSPACE, session.token());
    // There are not so many, so it is answered when its time is over.
    assertEquals(2, hurried.waitFor(9, Duration.ofSeconds(4)));
    assertEquals(2L, hurried.redis().executeCommand(Command.of("WAIT", 9, 4000).arguments()));
    assertEquals("us-east", hurried.put(key("receipt"), "x").origin());
  }

  @Test
  void read_transaction_reads_one_snapshot() throws Exception {
    Client client = connect("us-east");
    List<String> pair = List.of(key("{1}first"), key("{5}second"));
    ExecutorService executor = Executors.newSingleThreadExecutor();
    Future<?> writing = executor.submit(() -> {
      Session writer = client.session(KEYSPACE);
      for (int turn = 0; turn < 100; turn++) {
        for (String k : pair) {
          writer.put(k, "" + turn);
        }
      }
    });
    while (!writing.isDone()) {
      List<Integer> seen = client.session(KEYSPACE).readTransaction(pair).texts().stream().map(text -> text == null ? -1 : Integer.parseInt(text)).toList();
      assertTrue(seen.get(1) <= seen.get(0) && seen.get(0) <= seen.get(1) + 1, seen.toString());
    }
    writing.get();
    executor.shutdownNow();
  }

  @Test
  void conditional_write() throws Exception {
    Client client = connect("us-east");
    Session session = client.session("strong");
    String k = key("if");
    eventually("a leader", () -> session.putIf(k, "a", Condition.absent()));
    assertNull(session.putIf(k, "b", Condition.absent()));
    assertNull(session.putIf(k, "b", Condition.value("x")));
    assertEquals("a", session.get(k).text());
    Version version = session.putIf(k, "b", Condition.value("a"));
    assertNotNull(version);
    assertEquals(version, session.get(k).version());
    assertThrows(RheostatException.Refused.class, () -> client.session(KEYSPACE).putIf(k, "a", Condition.absent()));
  }

  @Test
  void counter_keeps_its_bounds() throws Exception {
    Session session = connect("us-east").session(KEYSPACE);
    String k = key("{c}stock");
    Counter stock = session.counter(k);
    stock.create(NewCounter.atLeast(0, 10));
    assertThrows(RheostatException.Refused.class, () -> stock.create(NewCounter.UNBOUNDED));
    assertEquals(9, stock.add(-1));
    RheostatException.NoRights why = assertThrows(RheostatException.NoRights.class, () -> stock.add(-100));
    assertEquals(List.of(k, 9L, "down", 100L), List.of(why.key(), why.value().getAsLong(), why.direction(), why.needed().getAsLong()));
    assertTrue(why.here().getAsLong() + why.elsewhere().getAsLong() <= 9);
    eventually("all rights", () -> stock.global().add(-9) == 0);
    assertThrows(RheostatException.NoRights.class, () -> stock.global().add(-1));
    Counter other = session.counter(key("{c}other"));
    other.create(NewCounter.atLeast(0, 5).atMost(100).placed(1, 0, 0));
    assertEquals(List.of(3L, 2L), other.transfer(k, 2));
    assertThrows(RheostatException.NoRights.class, () -> other.transfer(k, 4));
    assertThrows(RheostatException.Refused.class, () -> stock.transfer(k, 1));
    CounterView view = other.look();
    assertEquals(List.of(3L, 0L, 100L), List.of(view.value(), view.lower(), view.upper()));
    Set<String> names = new TreeSet<>();
    view.rights().forEach(right -> names.add(right.dataCenter()));
    assertEquals(new TreeSet<>(PLACES), names);
  }

  @Test
  void counter_rights_move() throws Exception {
    Session session = connect("us-east").session(KEYSPACE);
    String k = key("moved");
    session.counter(k).create(NewCounter.atLeast(0, 10).placed(1, 0, 0));
    session.counter(k).moveRights("eu", Counter.Direction.DOWN, 4);
    Session there = session.at(connect("eu"));
    eventually("the rights", () -> there.counter(k).add(-4) == 6);
  }

  @Test
  void counter_update_is_made_once() throws Exception {
    String k = key("once");
    try (Cluster.Proxy proxy = new Cluster.Proxy(port("us-east"), "COUNTER\r\n$3\r\nADD", 1)) {
      Session session = new Client(pool(proxy.port(), 8, PASSWORD, 20_000, null)).session(KEYSPACE);
      session.counter(k).create(NewCounter.atLeast(0, 10));
      assertEquals(9, session.counter(k).add(-1));
      assertEquals(2, proxy.seen.get());
      assertEquals(8, session.counter(k).add(-1));
      assertEquals(8, session.counter(k).look().value());
    }
  }

  @Test
  void counter_update_stays_in_its_region() throws Exception {
    String k = key("stays");
    try (Cluster.Proxy proxy = new Cluster.Proxy(port("us-east"), "COUNTER\r\n$3\r\nADD", 1)) {
      proxy.ends = true;
      Session session = new Client(pool(proxy.port(), 8, PASSWORD, 20_000, null), pool("eu")).session(KEYSPACE);
      session.counter(k).create(NewCounter.atLeast(0, 12));
      assertEquals(2, session.waitFor(2, Duration.ofSeconds(15)));
      assertFalse(assertThrows(RheostatException.Unreachable.class, () -> session.counter(k).add(-1)).nothingSent());
      assertEquals(1, proxy.seen.get());
      Session home = session.at(connect("us-east"));
      assertEquals(11, home.counter(k).look().value());
      home.put(k + "after", "x");
      assertEquals(11, home.at(connect("eu")).counter(k).look().value());
    }
  }

  @Test
  void counter_update_in_doubt_stays_in_doubt() throws Exception {
    try (Cluster.PlainRedis plain = Cluster.PlainRedis.busy()) {
      Session session = new Client(pool(plain.port(), 8, PASSWORD, 20_000, null)).session(KEYSPACE);
      assertFalse(assertThrows(RheostatException.Unreachable.class, () -> session.counter("k").add(-1)).nothingSent());
      assertTrue(plain.updates.get() > 1);
      assertThrows(RheostatException.Busy.class, () -> session.counter("k").add(-1));
    }
  }

  @Test
  void write_is_not_sent_twice() throws Exception {
    String k = key("twice");
    try (Cluster.Proxy proxy = new Cluster.Proxy(port("us-east"), "$3\r\nSET\r\n", 1)) {
      Session session = new Client(pool(proxy.port(), 8, PASSWORD, 20_000, null), pool("eu")).session(KEYSPACE);
      session.get(k);
      assertFalse(assertThrows(RheostatException.Unreachable.class, () -> session.put(k, "x")).nothingSent());
      assertEquals(1, proxy.seen.get());
      session.get(k);
    }
  }

  @Test
  void failover_to_another_region() throws Exception {
    Client client = new Client(Options.DEFAULT.withReturnAfter(Duration.ofMillis(50)), pool("us-west"), pool("eu"));
    Session session = client.session(KEYSPACE);
    String k = key("failover");
    assertEquals("us-west", session.put(k, "from the west").origin());
    assertEquals(2, session.waitFor(2, Duration.ofSeconds(15)));
    Cluster.tell("us-west", "KILL");
    try {
      assertEquals("from the west", session.get(k).text());
      assertEquals("eu", session.put(k, "from eu").origin());
      assertEquals("from eu", session.get(k).text());
    } finally {
      Cluster.startAgain();
    }
    eventually("the way back", () -> session.put(k, "home").origin().equals("us-west"));
    assertEquals("home", session.get(k).text());
  }

  @Test
  void lost_idle_connections_are_made_anew() throws Exception {
    String k = key("idle");
    try (Cluster.Proxy west = new Cluster.Proxy(port("us-west"), "\u00ff", 0)) {
      Client client = new Client(pool(west.port(), 8, PASSWORD, 20_000, null), pool("eu"));
      together(5, () -> {
        client.session(KEYSPACE).put(k, "before");
        return null;
      });
      Session session = client.session(KEYSPACE);
      for (int turn = 0; turn < 5; turn++) {
        west.drop();
        assertEquals("us-west", session.put(k, "after").origin());
        west.drop();
        assertEquals("after", session.get(k).text());
        assertNull(client.regions.get(0).avoidedUntil, "passed over");
      }
    }
  }

  @Test
  void hung_node_is_passed_over() throws Exception {
    String k = key("hung");
    try (Cluster.Proxy west = new Cluster.Proxy(port("us-west"), "\u00ff", 0)) {
      Session session = new Client(pool(west.port(), 8, PASSWORD, 2000, null), pool("eu")).session(KEYSPACE);
      assertEquals("us-west", session.put(k, "from the west").origin());
      west.hangs = true;
      assertEquals("from the west", session.get(k).text());
      assertEquals("eu", session.put(k, "from eu").origin());
    }
  }

  @Test
  void opening_node_is_passed_over() throws Exception {
    // A new pool's first connection is asked for its keyspace before the operation, too.
    for (Set<String> greets : List.of(Set.<String>of(), Set.of("AUTH"), Set.of("AUTH", "CLIENT"))) {
      try (Cluster.PlainRedis west = Cluster.PlainRedis.opening(greets)) {
        String k = key("opening");
        Session eu = connect("eu").session(KEYSPACE);
        eu.counter(k + "count").create(NewCounter.atLeast(0, 12));
        eu.put(k, "there");
        List<Predicate<Session>> operations = List.of(
            session -> session.put(k + "put", "x").origin().equals("eu"),
            session -> session.get(k).text().equals("there"),
            session -> session.counter(k + "count").add(-1) < 12);
        Options once = Options.DEFAULT.withReadRetries(0);
        for (Predicate<Session> operation : operations) {
          Session session = new Client(once, pool(west.port(), 8, PASSWORD, 20_000, null), pool("eu")).session(KEYSPACE);
          assertTrue(operation.test(session));
          int asked = west.asked.get();
          assertTrue(operation.test(session));
          assertEquals(asked, west.asked.get());
        }
        Violations.listen(new Client(once, pool(west.port(), 8, PASSWORD, 20_000, null), pool("eu")), "").close();
        Client alone = new Client(once, pool(west.port(), 8, PASSWORD, 20_000, null));
        List<Executable> failing = new ArrayList<>(List.of(() -> Violations.listen(alone, "")));
        operations.forEach(operation -> failing.add(() -> operation.test(alone.session(KEYSPACE))));
        for (Executable one : failing) {
          RheostatException.Unreachable opening = assertThrows(RheostatException.Unreachable.class, one);
          assertTrue(opening.nothingSent() && opening.getMessage().contains("opening its data"), opening.getMessage());
        }
        assertFalse(west.commands.contains("SET"));
      }
    }
  }

  @Test
  void dead_node_is_a_clear_error() throws Exception {
    int port = Cluster.unusedPort();
    Session session = new Client(Options.DEFAULT.withReadRetries(1), pool(port, 8, PASSWORD, 20_000, null)).session(KEYSPACE);
    List<Executable> operations = List.of(() -> session.put("k", "x"), () -> session.get("k"), () -> session.counter("k").add(1));
    for (Executable operation : operations) {
      RheostatException.Unreachable dead = assertThrows(RheostatException.Unreachable.class, operation);
      assertTrue(dead.nothingSent() && dead.getMessage().contains("" + port), dead.getMessage());
    }
  }

  @Test
  void siblings_are_resolved() {
    Client client = connect("us-east");
    String k = key("side");
    Session one = client.session("quorum");
    Session other = client.session("quorum");
    String context = one.siblings(k).context();
    one.replace(k, "milk".getBytes(StandardCharsets.UTF_8), context);
    other.replace(k, "bread".getBytes(StandardCharsets.UTF_8), context);
    assertEquals(2, one.siblings(k).values().size());
    byte[] both = "bread+milk".getBytes(StandardCharsets.UTF_8);
    assertArrayEquals(both, one.resolve(k, values -> values.size() == 2 ? both : null));
    assertEquals(1, other.siblings(k).values().size());
    assertArrayEquals(both, other.siblings(k).values().get(0));
    assertArrayEquals(both, one.resolve(k, values -> null));
  }

  @Test
  void wrong_password_is_a_clear_error() {
    Session session = new Client(pool(port("us-east"), 8, "guess", 20_000, null)).session(KEYSPACE);
    assertThrows(RheostatException.Unauthenticated.class, () -> session.get("k"));
    // A right one ends the count of wrong ones.
    connect("us-east").session(KEYSPACE).get("k");
    // Connections that have to show it again, as after a change of users, are made anew.
    Client client = new Client(pool(port("us-east"), 2, PASSWORD, 20_000, null));
    forget(client);
    client.session(KEYSPACE).put(key("again"), "x");
    forget(client);
    client.session(KEYSPACE).get("k");
  }

  /** Has the two connections of a pool show their password again. */
  private static void forget(Client client) {
    try (Connection one = Cluster.taken(client); Connection other = Cluster.taken(client)) {
      List.of(one, other).forEach(connection -> connection.executeCommand(Command.of("RESET").arguments()));
    }
  }

  @Test
  void pool_without_a_connection_is_busy() {
    Client client = new Client(Options.DEFAULT.withDeadline(Duration.ofMillis(100)), pool(port("us-east"), 1, PASSWORD, 20_000, null));
    Session session = client.session(KEYSPACE);
    try (Connection busy = Cluster.taken(client)) {
      assertThrows(RheostatException.Busy.class, () -> session.put("k", "x"));
    }
    session.put(key("busy"), "x");
    // One may wait for ever.
    Duration forever = ChronoUnit.FOREVER.getDuration();
    Options patient = Options.DEFAULT.withDeadline(forever).withReturnAfter(forever);
    Session waits = new Client(patient, pool(port("us-east"), 1, PASSWORD, 20_000, null)).session(KEYSPACE);
    waits.put(key("busy"), "x");
    assertThrows(RheostatException.Refused.class, () -> waits.withDial(Dial.NONE.withWithin(forever)).get("k"));
  }

  @Test
  void server_without_rheo_is_a_clear_error() throws Exception {
    try (Cluster.PlainRedis plain = new Cluster.PlainRedis()) {
      Session session = new Client(pool(plain.port(), 8, PASSWORD, 20_000, null)).session(KEYSPACE);
      assertThrows(RheostatException.NotRheostat.class, () -> session.put("k", "x"));
      assertInstanceOf(RheostatException.Refused.class, assertThrows(RheostatException.NotRheostat.class, () -> session.get("k")));
      assertFalse(plain.commands.contains("SET"));
    }
  }

  @Test
  void cancelled_operation_leaves_the_pool_clean() {
    String k = key("cancel");
    Session east = connect("us-east").session(KEYSPACE);
    Client eu = new Client(Options.DEFAULT.withReadRetries(0), pool(port("eu"), 1, PASSWORD, 3000, RedisProtocol.RESP3));
    try (Cluster.Cut cut = new Cluster.Cut(EAST_ALONE)) {
      east.put(k, "x");
      Session waiting = eu.resume(KEYSPACE, east.token());
      Session other = eu.session(KEYSPACE);
      other.put(k + "2", "mine");
      assertThrows(RheostatException.Timeout.class, () -> waiting.get(k));
      assertEquals("mine", other.get(k + "2").text());
      assertEquals(east.token(), waiting.token());
    }
  }

  /** A predicate that two keys must not be 1 at once: its name, and the keys. */
  private static String[] twoKeys(String word) {
    String[] made = {key(word).replace(':', '_'), key(word), key(word)};
    Cluster.watch(made[0], "!(" + made[1] + " = 1 && " + made[2] + " = 1)");
    return made;
  }

  private static void violate(String[] twoKeys) {
    connect("us-east").session("eventual").put(twoKeys[1], "1");
    connect("eu").session("eventual").put(twoKeys[2], "1");
  }

  private static Said until(Violations violations, String what, Predicate<Said> wanted) throws InterruptedException {
    for (long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1), now = System.nanoTime(); now < end; now = System.nanoTime()) {
      Said said = violations.next(Duration.ofNanos(end - now));
      if (said != null && wanted.test(said)) {
        return said;
      }
    }
    throw new AssertionError("never told: " + what);
  }

  private static boolean isCertain(Said said) {
    return said instanceof Violation violation && violation.certain();
  }

  /** Waits for violations in vain. */
  private static void nothingWithin(Violations violations, long ms) throws InterruptedException {
    for (long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ms), now = System.nanoTime(); now < end; now = System.nanoTime()) {
      Said said = violations.next(Duration.ofNanos(end - now));
      assertTrue(said == null || said instanceof Said.Missed, () -> "" + said);
    }
  }

  @Test
  void violation_is_told_with_its_evidence() throws Exception {
    String[] names = twoKeys("told");
    String elsewhere = twoKeys("elsewhere")[0];
    try (Violations violations = Violations.listen(connect("eu"), names[0]); Violations others = Violations.listen(connect("eu"), elsewhere)) {
      Map<String, Version> versions = Map.of(names[1], connect("us-east").session("eventual").put(names[1], "1"), names[2],
          connect("us-west").session("eventual").put(names[2], "1"));
      Violation told = (Violation) until(violations, "the violation", SuiteTest::isCertain);
      assertEquals(names[0], told.monitor());
      assertEquals("eventual", told.keyspace());
      assertTrue(told.node().endsWith("-1") && told.number() > 0 && told.notBefore().millis() < told.atMs(), told::toString);
      assertTrue(Math.abs(told.atMs() - System.currentTimeMillis()) < 60_000, told::toString);
      Set<String> seen = new TreeSet<>();
      for (Violation.Evidence state : told.evidence()) {
        String of = new String(state.key(), StandardCharsets.UTF_8);
        seen.add(of);
        Version version = versions.get(of);
        assertEquals("1", new String(state.value(), StandardCharsets.UTF_8));
        assertEquals(of.equals(names[1]) ? "us-east" : "us-west", state.dataCenter());
        assertEquals(List.of(version.millis(), version.counter()), List.of(state.version().millis(), state.version().counter()));
        assertTrue(told.notBefore().millis() < state.from().millis() + 1000 && state.from().millis() <= told.atMs(), state::toString);
        assertTrue(state.until() == null || state.until().millis() >= state.from().millis(), state::toString);
      }
      assertEquals(Set.of(names[1], names[2]), seen);
      nothingWithin(others, 200);
    }
  }

  @Test
  void alarms_come_again_from_another_region() throws Exception {
    String[] names = twoKeys("again");
    Client client = new Client(Options.DEFAULT.withReturnAfter(Duration.ofMillis(50)), pool("us-west"), pool("eu"));
    try (Violations violations = Violations.listen(client, names[0])) {
      Cluster.tell("us-west", "KILL");
      try {
        Said.Silence silence = (Said.Silence) until(violations, "silence", Said.Silence.class::isInstance);
        assertTrue(silence.why().contains("127.0.0.1"), silence.why());
        long before = violations.missed();
        until(violations, "that it goes on", Said.Missed.class::isInstance);
        assertTrue(violations.missed() > before);
      } finally {
        Cluster.startAgain();
      }
      violate(names);
      until(violations, "the violation", SuiteTest::isCertain);
    }
  }

  @Test
  void silent_node_is_passed_over() throws Exception {
    String[] names = twoKeys("silent");
    try (Cluster.Proxy west = new Cluster.Proxy(port("us-west"), "\u00ff", 0)) {
      Client client =
          new Client(Options.DEFAULT.withSilenceAfter(Duration.ofSeconds(4)), pool(west.port(), 8, PASSWORD, 2000, RedisProtocol.RESP3), pool("eu"));
      try (Violations violations = Violations.listen(client, names[0])) {
        // It is asked whether it is there, and says so.
        nothingWithin(violations, 6400);
        west.hangs = true;
        until(violations, "silence", Said.Silence.class::isInstance);
        until(violations, "that it goes on", Said.Missed.class::isInstance);
        violate(names);
        until(violations, "the violation", SuiteTest::isCertain);
      }
    }
  }

  @Test
  void closing_ends_the_wait() throws Exception {
    String name = twoKeys("close")[0];
    try (JedisPooled one = pool("eu")) {
      Supplier<Set<String>> connections = () -> {
        String list = new String((byte[]) one.sendCommand(Protocol.Command.CLIENT, "LIST"), StandardCharsets.UTF_8);
        Set<String> ids = new TreeSet<>();
        list.lines().forEach(line -> ids.add(line.split(" ")[0]));
        return ids;
      };
      // Clients of other tests have ended theirs, and the node sees it when it sees it.
      Set<String> before = connections.get();
      Violations violations = Violations.listen(connect("eu"), name);
      Set<String> own = connections.get();
      own.removeAll(before);
      assertEquals(1, own.size(), own::toString);
      nothingWithin(violations, 200);
      Thread closing = new Thread(() -> {
        try {
          Thread.sleep(200);
        } catch (InterruptedException nobodyDoes) {
          throw new AssertionError(nobodyDoes);
        }
        violations.close();
      });
      closing.start();
      for (Said said = violations.next(); said != null; said = violations.next()) {
        assertInstanceOf(Said.Missed.class, said);
      }
      closing.join();
      assertNull(violations.next());
      violations.close();
      eventually("one connection less", () -> Collections.disjoint(connections.get(), own));
    }
  }

  @Test
  void listening_is_refused_with_a_typed_error() throws Exception {
    DefaultJedisClientConfig writer = DefaultJedisClientConfig.builder().user("writer").password("only writes").build();
    Client may = new Client(new JedisPooled(new HostAndPort("127.0.0.1", port("us-east")), writer));
    assertThrows(RheostatException.Unauthenticated.class, () -> Violations.listen(may, ""));
    Client stranger = new Client(pool(port("us-east"), 8, "guess", 20_000, null));
    assertThrows(RheostatException.Unauthenticated.class, () -> Violations.listen(stranger, ""));
    // A right one ends the count of wrong ones.
    connect("us-east").session(KEYSPACE).get("k");
    try (Cluster.PlainRedis plain = new Cluster.PlainRedis(true, 0); Cluster.PlainRedis old = new Cluster.PlainRedis()) {
      Client none = new Client(pool(plain.port(), 8, PASSWORD, 20_000, null));
      assertThrows(RheostatException.NotRheostat.class, () -> Violations.listen(none, ""));
      Client before = new Client(pool(old.port(), 8, PASSWORD, 20_000, null));
      assertTrue(assertThrows(RheostatException.Refused.class, () -> Violations.listen(before, "")).getMessage().contains("RESP3"));
    }
    int port = Cluster.unusedPort();
    Client nobody = new Client(pool(port, 8, PASSWORD, 20_000, null));
    RheostatException.Unreachable dead = assertThrows(RheostatException.Unreachable.class, () -> Violations.listen(nobody, ""));
    assertTrue(dead.nothingSent() && dead.getMessage().contains("" + port), dead.getMessage());
  }

  @Test
  void refusal_later_ends_the_subscription() throws Exception {
    try (Cluster.PlainRedis plain = new Cluster.PlainRedis(true, 1)) {
      Client client = new Client(Options.DEFAULT.withSilenceAfter(Duration.ofSeconds(4)), pool(plain.port(), 8, PASSWORD, 20_000, null));
      try (Violations violations = Violations.listen(client, "m")) {
        assertInstanceOf(Violation.class, violations.next(Duration.ofMinutes(1)));
        String why = ((Said.Silence) until(violations, "silence", Said.Silence.class::isInstance)).why();
        assertTrue(why.contains("Authentication"), why);
        for (int turn = 0; turn < 2; turn++) {
          assertThrows(RheostatException.Unauthenticated.class, () -> violations.next(Duration.ofMinutes(1)));
        }
      }
    }
  }

  @Test
  void slow_listener_is_told_what_was_left_out() throws Exception {
    try (Cluster.PlainRedis plain = new Cluster.PlainRedis(true, 3000);
        Violations violations = Violations.listen(
            new Client(Options.DEFAULT.withSilenceAfter(ChronoUnit.FOREVER.getDuration()), pool(plain.port(), 8, PASSWORD, 20_000, null)), "m")) {
      // Long enough for a thread to read half a megabyte.
      Thread.sleep(5000);
      int told = 0;
      int leftOut = 0;
      while (told + leftOut < 3000) {
        Said said = until(violations, "all", any -> true);
        if (said instanceof Violation violation) {
          assertEquals(told + leftOut, violation.number());
          told++;
        } else {
          leftOut += Integer.parseInt(((Said.Missed) said).why().replaceAll(".*: (\\d+) events were left out", "$1"));
        }
      }
      assertEquals(3000, told + leftOut);
      assertTrue(leftOut > 0);
    }
  }
}
