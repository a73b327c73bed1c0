package rheostat.client;

import java.io.BufferedReader;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import redis.clients.jedis.Connection;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.RedisProtocol;

/** The cluster that clients/test.sh starts, and what harms it. */
final class Cluster {
  static final String KEYSPACE = "default";
  static final String PASSWORD = "open sesame";
  static final List<String> PLACES = List.of("us-east", "us-west", "eu");
  static final String[][] EAST_ALONE = {{"us-east", "us-west"}, {"us-east", "eu"}};
  private static final long PATIENCE_NS = TimeUnit.MINUTES.toNanos(1);
  private static final String SUITE = System.getenv("RHEOSTAT_SUITE");

  private Cluster() {}

  static void need() {
    if (SUITE == null) {
      throw new IllegalStateException("these tests need the cluster that clients/test.sh starts: clients/test.sh java");
    }
  }

  static int port(String place) {
    return Integer.parseInt(System.getenv("RHEOSTAT_PORT")) + 10 * PLACES.indexOf(place);
  }

  static String key(String name) {
    return "java:" + name + ":" + HexFormat.of().toHexDigits(ThreadLocalRandom.current().nextLong());
  }

  /** A pool of Jedis' as an application has one. */
  static JedisPooled pool(int port, int most, String password, int timeoutMs, RedisProtocol protocol) {
    ConnectionPoolConfig config = new ConnectionPoolConfig();
    config.setMaxTotal(most);
    config.setMaxIdle(most);
    config.setJmxEnabled(false);
    DefaultJedisClientConfig client =
        DefaultJedisClientConfig.builder().password(password).socketTimeoutMillis(timeoutMs).connectionTimeoutMillis(20_000).protocol(protocol).build();
    return new JedisPooled(config, new HostAndPort("127.0.0.1", port), client);
  }

  static JedisPooled pool(String place) {
    return pool(port(place), 50, PASSWORD, 20_000, null);
  }

  static Client connect(String place) {
    return new Client(pool(place));
  }

  /** Waits until this is neither null nor false; errors of ours are tried again. */
  static <T> T eventually(String what, Supplier<T> attempt) throws InterruptedException {
    RheostatException last = null;
    for (long until = System.nanoTime() + PATIENCE_NS; System.nanoTime() < until; Thread.sleep(20)) {
      try {
        T result = attempt.get();
        if (result != null && !Boolean.FALSE.equals(result)) {
          return result;
        }
      } catch (RheostatException failed) {
        last = failed;
      }
    }
    throw new AssertionError("never came: " + what, last);
  }

  private static void ctl(String... words) {
    List<String> command = new ArrayList<>(List.of(System.getenv("RHEOSTAT"), "ctl"));
    command.addAll(Arrays.asList(words));
    try {
      Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
      String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      if (process.waitFor() != 0) {
        throw new AssertionError(command + ": " + output);
      }
    } catch (IOException | InterruptedException error) {
      throw new AssertionError(error);
    }
  }

  /** Links that are cut, until this is closed. */
  static final class Cut implements Closeable {
    private final String[][] links;
    private boolean whole;

    Cut(String[]... links) {
      this.links = links;
      for (String[] link : links) {
        ctl("--address", "127.0.0.1:" + (port("us-east") + 1), "pause-link", link[0], link[1]);
      }
    }

    @Override
    public void close() {
      for (String[] link : links) {
        if (!whole) {
          ctl("--address", "127.0.0.1:" + (port("us-east") + 1), "resume-link", link[0], link[1]);
        }
      }
      whole = true;
    }
  }

  /** Sends a signal to a node. */
  static void tell(String place, String signal) throws IOException, InterruptedException {
    String[] pid = Files.readString(Path.of(SUITE, "nodes", place + "-1", "pid")).split(" ");
    new ProcessBuilder("kill", "-" + signal, pid[0]).start().waitFor();
  }

  static void startAgain() {
    ctl("cluster", "up", SUITE + "/cluster.toml");
  }

  private static void accept(ServerSocket listener, Serving serve) {
    Thread thread = new Thread(() -> {
      while (!listener.isClosed()) {
        try {
          Socket socket = listener.accept();
          start(() -> serve.serve(socket));
        } catch (IOException closed) {
          return;
        }
      }
    });
    thread.setDaemon(true);
    thread.start();
  }

  private interface Serving {
    void serve(Socket socket) throws IOException;
  }

  private interface Work {
    void run() throws IOException;
  }

  private static void start(Work work) {
    Thread thread = new Thread(() -> {
      try {
        work.run();
      } catch (IOException lost) {
        // As it should be.
      }
    });
    thread.setDaemon(true);
    thread.start();
  }

  private static ServerSocket listen() throws IOException {
    return new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
  }

  static int unusedPort() throws IOException {
    try (ServerSocket listener = listen()) {
      return listener.getLocalPort();
    }
  }

  /** Passes bytes on. What has the marker in it is passed on, and its answer is not: the connection is lost instead, the first so many times. While it hangs, nothing is passed on. One that ends takes no connection after the first that it has lost. */
  static final class Proxy implements Closeable {
    volatile boolean hangs;
    volatile boolean ends;
    private final Set<Socket> clients = ConcurrentHashMap.newKeySet();
    final AtomicInteger seen = new AtomicInteger();
    private final ServerSocket listener = listen();

    Proxy(int target, String marker, int times) throws IOException {
      accept(listener, client -> {
        Socket server = new Socket(InetAddress.getLoopbackAddress(), target);
        clients.add(client);
        AtomicBoolean lose = new AtomicBoolean();
        start(() -> {
          try (server; client) {
            InputStream from = server.getInputStream();
            byte[] buffer = new byte[65536];
            for (int n = from.read(buffer); n >= 0 && !lose.get(); n = from.read(buffer)) {
              client.getOutputStream().write(buffer, 0, n);
            }
          }
        });
        try (server; client) {
          InputStream from = client.getInputStream();
          byte[] buffer = new byte[65536];
          for (int n = from.read(buffer); n >= 0; n = from.read(buffer)) {
            if (new String(buffer, 0, n, StandardCharsets.ISO_8859_1).contains(marker) && seen.incrementAndGet() <= times) {
              lose.set(true);
              if (ends) {
                close();
              }
            }
            if (!hangs) {
              server.getOutputStream().write(buffer, 0, n);
            }
          }
        }
      });
    }

    int port() {
      return listener.getLocalPort();
    }

    /** Loses all connections. */
    void drop() throws IOException {
      for (Socket client : clients) {
        client.close();
      }
      clients.clear();
    }

    @Override
    public void close() throws IOException {
      listener.close();
    }
  }

  /** Has a predicate over keys of the keyspace eventual watched for. */
  static void watch(String name, String expression) {
    ctl("--address", "127.0.0.1:" + (port("us-east") + 1), "monitor", "add", name, expression, "--keyspace", "eventual");
  }

  private static String alarm(int number) {
    StringBuilder pairs = new StringBuilder();
    for (String word : List.of("what", "possible", "monitor", "m", "keyspace", "k", "node", "n", "not_before", "1.0")) {
      pairs.append("$").append(word.length()).append("\r\n").append(word).append("\r\n");
    }
    return ">2\r\n$7\r\nmonitor\r\n%8\r\n" + pairs + "$6\r\nnumber\r\n:" + number + "\r\n$5\r\nat_ms\r\n:1\r\n$8\r\nevidence\r\n*0\r\n";
  }

  /**
   * Speaks enough of Redis to be asked for RHEO, and says that it does not know it. One that has alarms knows it, tells so many to whoever listens first, and refuses all after that.
   * One that is opening its data answers with LOADING to all but the commands that it greets. One that is busy knows RHEO, loses the connection on which the first update of a
   * counter comes, and answers those that follow with BUSY.
   */
  static final class PlainRedis implements Closeable {
    private static final Set<String> KNOWN = Set.of("SELECT", "SET", "GET", "CLIENT", "AUTH", "PING");
    final Set<String> commands = ConcurrentHashMap.newKeySet();
    final AtomicInteger asked = new AtomicInteger();
    final AtomicInteger updates = new AtomicInteger();
    private final ServerSocket listener = listen();

    PlainRedis() throws IOException {
      this(false, 0);
    }

    PlainRedis(boolean resp3, int alarms) throws IOException {
      this(resp3, alarms, null, false);
    }

    static PlainRedis opening(Set<String> greets) throws IOException {
      return new PlainRedis(false, 0, greets, false);
    }

    static PlainRedis busy() throws IOException {
      return new PlainRedis(false, 0, null, true);
    }

    private PlainRedis(boolean resp3, int alarms, Set<String> greets, boolean busy) throws IOException {
      accept(listener, client -> {
        BufferedReader reader = new BufferedReader(new InputStreamReader(client.getInputStream(), StandardCharsets.ISO_8859_1));
        OutputStream out = client.getOutputStream();
        for (String count = reader.readLine(); count != null; count = reader.readLine()) {
          List<String> words = new ArrayList<>();
          for (int i = Integer.parseInt(count.substring(1)); i > 0; i--) {
            reader.readLine();
            words.add(reader.readLine());
          }
          String name = words.get(0).toUpperCase(java.util.Locale.ROOT);
          boolean listened = alarms > 0 && commands.contains("RHEO");
          commands.add(name);
          asked.incrementAndGet();
          boolean info = words.size() > 1 && words.get(1).equals("INFO");
          String known = info ? "$4\r\ndb=0\r\n" : "+OK\r\n";
          String answer = KNOWN.contains(name) ? known : "-ERR unknown command '" + words.get(0) + "', with args beginning with: \r\n";
          if (greets != null && !greets.contains(name)) {
            answer = "-LOADING this node is opening its data: 0 of 2 partition servers are open\r\n";
          } else if (busy && name.equals("RHEO") && words.get(1).equals("COUNTER")) {
            if (updates.incrementAndGet() == 1) {
              client.close();
              return;
            }
            answer = "-BUSY too much waits here\r\n";
          } else if (busy && name.equals("RHEO")) {
            answer = words.get(1).equals("QUALITY") ? "*0\r\n" : "+OK\r\n";
          } else if (name.equals("HELLO") && resp3) {
            answer = "%1\r\n$5\r\nproto\r\n:3\r\n";
          } else if (listened && (name.equals("RHEO") || name.equals("PING"))) {
            answer = name.equals("RHEO") ? "-NOPERM no more\r\n" : "-NOAUTH Authentication required.\r\n";
          } else if (name.equals("RHEO") && alarms > 0) {
            answer = "+OK\r\n" + IntStream.range(0, alarms).mapToObj(Cluster::alarm).collect(Collectors.joining());
          }
          out.write(answer.getBytes(StandardCharsets.ISO_8859_1));
        }
      });
    }

    int port() {
      return listener.getLocalPort();
    }

    @Override
    public void close() throws IOException {
      listener.close();
    }
  }

  static Connection taken(Client client) {
    return client.regions.get(0).pool.getResource();
  }

  static final Dial WITHIN = Dial.NONE.withWithin(Duration.ofMillis(200));
}
