package rheostat.ycsb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class RespStoreTest {
  private static final byte[] KEY = "k".getBytes(StandardCharsets.UTF_8);

  private static RespStore store(FakeResp server, String... pairs) throws Exception {
    Settings settings = Settings.of(SettingsTest.properties(pairs));
    return new RespStore(settings, new Settings.Address("127.0.0.1", server.port()));
  }

  private static Function<String, String> get(String answer) {
    return request -> request.startsWith("GET") ? answer : "+OK\r\n";
  }

  /** The first GET is answered with this, those after it with v. */
  private static Function<String, String> firstGet(String answer) {
    AtomicInteger asked = new AtomicInteger();
    return request -> !request.startsWith("GET") ? "+OK\r\n" : asked.getAndIncrement() == 0 ? answer : "$1\r\nv\r\n";
  }

  @Test
  void theDialIsSetOnce() throws Exception {
    try (FakeResp server = new FakeResp(get("$-1\r\n"));
        RespStore store = store(server, "rheostat.keyspace", "orders", "rheostat.level", "read-your-writes", "rheostat.strategy", "predicted")) {
      assertNull(store.get(KEY));
      assertNull(store.get(KEY));
      assertTrue(server.requests.contains("SELECT orders"));
      assertEquals(List.of("RHEO LEVEL read-your-writes", "RHEO STRATEGY predicted", "GET k", "GET k"), server.operations());
    }
  }

  @Test
  void withoutSessionsEachOperationBeginsANewOne() throws Exception {
    try (FakeResp server = new FakeResp(get("$1\r\nv\r\n")); RespStore store = store(server, "rheostat.session", "none")) {
      assertEquals("v", new String(store.get(KEY), StandardCharsets.UTF_8));
      store.put(KEY, KEY);
      assertEquals(List.of("RHEO SESSION RESET", "GET k", "RHEO SESSION RESET", "SET k k"), server.operations());
    }
  }

  @Test
  void redisIsAskedOnlyWhatItKnows() throws Exception {
    try (FakeResp server = new FakeResp(get("$-1\r\n")); RespStore store = store(server, "rheostat.server", "redis")) {
      store.get(KEY);
      store.putAll(List.of(KEY, "l".getBytes(StandardCharsets.UTF_8)), List.of(KEY, KEY));
      assertEquals(List.of("GET k", "MSET k k l k"), server.operations());
    }
  }

  @ParameterizedTest
  @CsvSource({
    "TIMEOUT the deadline passed, TIMEOUT",
    "BUSY too much is under way, SERVICE_UNAVAILABLE",
    "CLUSTERDOWN node b cannot be reached, SERVICE_UNAVAILABLE",
    "NOAUTH Authentication required., FORBIDDEN",
    "SESSION the token is damaged, UNEXPECTED_STATE",
    "ERR no such level, BAD_REQUEST",
    "CROSSSLOT Keys in request don't hash to the same slot, BAD_REQUEST",
    "STORAGE the disk is full, ERROR",
  })
  void errorsBecomeStatusesAndTheConnectionStays(String said, String status) throws Exception {
    try (FakeResp server = new FakeResp(firstGet("-" + said + "\r\n")); RespStore store = store(server, "rheostat.session", "none")) {
      StoreException error = assertThrows(StoreException.class, () -> store.get(KEY));
      assertEquals(status, error.status().getName());
      assertEquals(said, error.getMessage());
      assertEquals("v", new String(store.get(KEY), StandardCharsets.UTF_8), "its reply is not taken for another's");
    }
  }

  @Test
  void aServerThatIsSilentIsWaitedForNoLongerThanAllowed() throws Exception {
    try (FakeResp server = new FakeResp(get("")); RespStore store = store(server, "rheostat.timeout.ms", "50")) {
      assertEquals("TIMEOUT", assertThrows(StoreException.class, () -> store.get(KEY)).status().getName());
    }
  }

  @Test
  void aBrokenConnectionIsMadeAnew() throws Exception {
    try (FakeResp server = new FakeResp(firstGet(null)); RespStore store = store(server, "rheostat.keyspace", "orders")) {
      assertEquals("SERVICE_UNAVAILABLE", assertThrows(StoreException.class, () -> store.get(KEY)).status().getName());
      assertEquals("v", new String(store.get(KEY), StandardCharsets.UTF_8));
      assertEquals(2, server.requests.stream().filter("SELECT orders"::equals).count());
    }
  }

  @Test
  void wrongNumbersOfValuesAreNoticed() throws Exception {
    try (FakeResp server = new FakeResp(request -> request.startsWith("MGET") ? "*1\r\n$-1\r\n" : "+OK\r\n"); RespStore store = store(server)) {
      StoreException error = assertThrows(StoreException.class, () -> store.getAll(List.of(KEY, "l".getBytes(StandardCharsets.UTF_8))));
      assertEquals("UNEXPECTED_STATE", error.status().getName());
    }
  }
}
