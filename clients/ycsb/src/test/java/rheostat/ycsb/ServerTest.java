package rheostat.ycsb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.Vector;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DBException;
import site.ycsb.Status;

/** The binding, and the stock client with it, against a server. */
class ServerTest {
  private static final int CLIENT_TIMEOUT_S = 120;

  @TempDir static Path folder;
  private static RheostatServer server;

  @BeforeAll
  static void start() throws Exception {
    Optional<Path> program = RheostatServer.program();
    if (program.isEmpty()) {
      System.out.println(RheostatServer.MISSING);
    } else {
      server = RheostatServer.start(program.get(), folder);
    }
  }

  /** Test by test, so that those skipped are counted. */
  @BeforeEach
  void needServer() {
    Assumptions.assumeTrue(server != null, RheostatServer.MISSING);
  }

  @AfterAll
  static void stop() throws Exception {
    if (server != null) {
      server.close();
    }
  }

  private static RheostatClient client(String transport, String... more) throws DBException {
    Properties properties = new Properties();
    List<String> all = new ArrayList<>(server.properties(transport));
    all.addAll(List.of(more));
    all.forEach(property -> properties.setProperty(property.split("=", 2)[0], property.split("=", 2)[1]));
    RheostatClient client = new RheostatClient();
    client.setProperties(properties);
    client.init();
    return client;
  }

  private static Map<String, ByteIterator> fields(String... pairs) {
    Map<String, ByteIterator> fields = new HashMap<>();
    for (int i = 0; i < pairs.length; i += 2) {
      fields.put(pairs[i], new ByteArrayByteIterator(pairs[i + 1].getBytes(StandardCharsets.UTF_8)));
    }
    return fields;
  }

  private static String text(Map<String, ByteIterator> fields) {
    Map<String, String> texts = new TreeMap<>();
    fields.forEach((field, value) -> texts.put(field, value.toString()));
    return texts.toString();
  }

  @ParameterizedTest
  @CsvSource({
    "resp, keys, causal, thread", "resp, value, causal, none", "resp, keys, eventual, none", "grpc, keys, causal, none", "grpc, value, causal, thread",
    "grpc, keys, eventual, thread",
  })
  void recordsLiveAndDie(String transport, String layout, String keyspace, String session) throws Exception {
    RheostatClient client = client(transport, "rheostat.fields=" + layout, "rheostat.keyspace=" + keyspace, "rheostat.session=" + session, "fieldcount=2");
    String table = transport + layout + session;
    Map<String, ByteIterator> read = new HashMap<>();
    assertEquals(Status.NOT_FOUND, client.read(table, "k", null, read));
    assertEquals(Status.OK, client.insert(table, "k", fields("field0", "a", "field1", "")));
    assertEquals(Status.OK, client.insert(table, "l", fields("field0", "c", "field1", "d")));
    assertEquals(Status.OK, client.update(table, "k", fields("field0", "A")));
    assertEquals(Status.OK, client.read(table, "k", null, read));
    assertEquals("{field0=A, field1=}", text(read));
    read.clear();
    assertEquals(Status.OK, client.read(table, "k", Set.of("field0"), read));
    assertEquals("{field0=A}", text(read));

    assertEquals(client, ReadTransactions.here());
    Map<String, Map<String, ByteIterator>> several = new TreeMap<>();
    assertEquals(Status.OK, client.readTransaction(table, List.of("l", "k"), null, several));
    assertEquals("{field0=A, field1=}", text(several.get("k")));
    assertEquals("{field0=c, field1=d}", text(several.get("l")));
    several.clear();
    assertEquals(Status.NOT_FOUND, client.readTransaction(table, List.of("k", "m"), Set.of("field0"), several));
    assertEquals(Set.of("k"), several.keySet());

    assertEquals(Status.OK, client.delete(table, "k"));
    assertEquals(Status.NOT_FOUND, client.delete(table, "k"));
    assertEquals(Status.NOT_FOUND, client.read(table, "k", null, read));
    client.cleanup();
    assertNull(ReadTransactions.here());
  }

  @Test
  void scansAreRefusedUnlessAskedFor() throws Exception {
    RheostatClient client = client("resp");
    assertEquals(Status.NOT_IMPLEMENTED, client.scan("t", "user1", 2, null, new Vector<>()));
    client.cleanup();
    client = client("resp", "rheostat.scan=consecutive", "insertorder=ordered", "fieldcount=1");
    for (String key : List.of("user9", "user11")) {
      assertEquals(Status.OK, client.insert("scan", key, fields("field0", key)));
    }
    Vector<HashMap<String, ByteIterator>> found = new Vector<>();
    assertEquals(Status.OK, client.scan("scan", "user9", 5, null, found));
    assertEquals(List.of("{field0=user9}", "{field0=user11}"), found.stream().map(ServerTest::text).toList());
    client.cleanup();
  }

  @ParameterizedTest
  @ValueSource(strings = {"resp", "grpc"})
  void whatCannotBeServedIsSaidAtTheStart(String transport) {
    DBException error = assertThrows(DBException.class, () -> client(transport, "rheostat.keyspace=elsewhere"));
    assertTrue(error.getMessage().contains("no such keyspace") || error.getMessage().contains("no keyspace elsewhere"), error.getMessage());
    assertThrows(DBException.class, () -> client(transport, "rheostat.password=wrong"));
    assertThrows(DBException.class, () -> client(transport, "rheostat.fields=hash"));
    assertThrows(DBException.class, () -> client(transport, "rheostat.hosts=127.0.0.1:1", "rheostat.timeout.ms=500"));
  }

  @Test
  void aLevelThatTheKeyspaceCannotGiveIsAnError() throws Exception {
    DBException error = assertThrows(DBException.class, () -> client("resp", "rheostat.level=strong"));
    assertTrue(error.getMessage().contains("strong"), error.getMessage());
    RheostatClient client = client("grpc", "rheostat.level=strong");
    assertEquals(Status.UNEXPECTED_STATE, client.read("t", "k", null, new HashMap<>()));
    client.cleanup();
  }

  @ParameterizedTest
  @CsvSource({
    "a, keys, resp, READ UPDATE", "b, value, resp, READ UPDATE", "c, keys, grpc, READ", "d, keys, resp, READ INSERT", "e, value, resp, SCAN INSERT",
    "f, value, grpc, READ READ-MODIFY-WRITE", "rotx, keys, resp, READ-TRANSACTION UPDATE", "rotx, value, grpc, READ-TRANSACTION UPDATE",
  })
  void theStockClientRuns(String workload, String layout, String transport, String operations) throws Exception {
    // Integrity is checked where every record of a run can be known; what workload E scans is not.
    String table = "table=stock" + workload + layout;
    List<String> more = List.of("rheostat.fields=" + layout, table, "recordcount=50", "operationcount=200", "dataintegrity=" + !workload.equals("e"));
    String loaded = stockClient("-load", workload, transport, more);
    assertEquals(50, count(loaded, "INSERT", "Return=OK"), loaded);
    String run = stockClient("-t", workload, transport, more);
    for (String operation : operations.split(" ")) {
      assertTrue(count(run, operation, "Operations") > 0, operation + " in " + run);
    }
    assertFalse(run.contains("FAILED"), run);
    Matcher statuses = Pattern.compile("Return=(\\w+)").matcher(run);
    while (statuses.find()) {
      assertEquals("OK", statuses.group(1), run);
    }
    if (!workload.equals("e")) {
      assertTrue(count(run, "VERIFY", "Return=OK") > 0, run);
    }
  }

  @Test
  void theTransactionWorkloadNeedsADatabaseThatHasThem() throws Exception {
    String said = stockClient("-t", "rotx", "resp", List.of("db=site.ycsb.BasicDB", "basicdb.verbose=false"));
    assertTrue(said.contains("this database offers no read-only transactions"), said);
    said = stockClient("-t", "rotx", "resp", List.of("rheostat.rotx.keys=51", "recordcount=50"));
    assertTrue(said.contains("cannot be chosen from recordcount=50"), said);
  }

  /** A line of results: {@code [OPERATION], what, number}; 0 if there is none. */
  private static int count(String output, String operation, String what) {
    Matcher line = Pattern.compile("^\\[" + operation + "\\], " + what + ", (\\d+)", Pattern.MULTILINE).matcher(output);
    return line.find() ? Integer.parseInt(line.group(1)) : 0;
  }

  private static String stockClient(String phase, String workload, String transport, List<String> properties) throws Exception {
    String classpath = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    List<String> command = new ArrayList<>(List.of(java, "-cp", classpath, "site.ycsb.Client", "-db", RheostatClient.class.getName(), phase));
    command.addAll(List.of("-P", "workloads/" + workload + ".properties", "-threads", "2"));
    List<String> all = new ArrayList<>(server.properties(transport));
    all.addAll(properties);
    for (String property : all) {
      command.addAll(List.of("-p", property));
    }
    File output = Files.createTempFile(folder, "client", ".txt").toFile();
    Process process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(output).start();
    if (!process.waitFor(CLIENT_TIMEOUT_S, TimeUnit.SECONDS)) {
      process.destroyForcibly().waitFor();
      throw new AssertionError("the client did not end: " + Files.readString(output.toPath()));
    }
    return Files.readString(output.toPath());
  }
}
