package rheostat.ycsb;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** A Rheostat node of one data center with two partitions, in memory, as a process of its own that ends with this. */
final class RheostatServer implements AutoCloseable {
  /** What a test that needs the program says when it is skipped. */
  static final String MISSING =
      "skipped: there is no rheostat program; build it (cargo build --release) or say where it is in the environment variable RHEOSTAT";

  static final String PASSWORD = "open sesame";
  private static final Pattern SERVING = Pattern.compile("serving .*RESP 127\\.0\\.0\\.1:(\\d+), gRPC 127\\.0\\.0\\.1:(\\d+)");
  private static final int START_TIMEOUT_MS = 20_000;

  private final Process process;
  final int respPort;
  final int grpcPort;

  private RheostatServer(Process process, int respPort, int grpcPort) {
    this.process = process;
    this.respPort = respPort;
    this.grpcPort = grpcPort;
  }

  /** The program: what RHEOSTAT says, else what the repository has built. */
  static Optional<Path> program() {
    String named = System.getenv("RHEOSTAT");
    Stream<Path> built = Stream.of("release", "debug").map(build -> Path.of("../../target", build, "rheostat"));
    Stream<Path> places = named != null ? Stream.of(Path.of(named)) : built;
    Optional<Path> found = places.filter(Files::isExecutable).findFirst();
    if (named != null && found.isEmpty()) {
      throw new IllegalStateException("RHEOSTAT=" + named + " is not a program that can be run");
    }
    return found;
  }

  static RheostatServer start(Path program, Path folder) throws IOException, InterruptedException {
    Path configuration = folder.resolve("node.toml");
    Files.writeString(configuration, """
        cluster = "ycsb-test"
        node = "a"
        data_center = "here"
        partitions = 2
        [listen]
        resp = "127.0.0.1:0"
        grpc = "127.0.0.1:0"
        [security]
        password = "%s"
        [[keyspace]]
        name = "causal"
        protocol = "causal"
        [[keyspace]]
        name = "eventual"
        protocol = "eventual"
        """.formatted(PASSWORD));
    Path log = folder.resolve("log");
    Process process = new ProcessBuilder(program.toAbsolutePath().toString(), "serve", "--config", configuration.toString())
        .redirectErrorStream(true).redirectOutput(log.toFile()).start();
    for (int waited = 0; waited < START_TIMEOUT_MS && process.isAlive(); waited += 20) {
      Matcher serving = SERVING.matcher(Files.readString(log));
      if (serving.find()) {
        return new RheostatServer(process, Integer.parseInt(serving.group(1)), Integer.parseInt(serving.group(2)));
      }
      Thread.sleep(20);
    }
    process.destroyForcibly();
    throw new IOException("the server did not start: " + Files.readString(log));
  }

  /** The properties of a client of this server. */
  List<String> properties(String transport) {
    int port = transport.equals("grpc") ? grpcPort : respPort;
    return List.of("rheostat.transport=" + transport, "rheostat.hosts=127.0.0.1:" + port, "rheostat.password=" + PASSWORD);
  }

  @Override
  public void close() {
    process.destroy();
    try {
      if (process.waitFor(10, TimeUnit.SECONDS)) {
        return;
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
    process.destroyForcibly();
  }
}
