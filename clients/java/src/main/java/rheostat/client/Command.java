package rheostat.client;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.args.Rawable;
import redis.clients.jedis.commands.ProtocolCommand;

/** One command, as bytes. */
record Command(List<byte[]> words) {
  private static final Set<String> READS = Set.of("GET", "MGET", "STRLEN", "EXISTS", "TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME", "TYPE", "SCAN", "DBSIZE",
      "TOUCH", "PING", "ECHO", "TIME", "WAIT", "COMMAND", "INFO", "CLUSTER", "CLIENT", "READONLY");
  private static final Set<String> READS_OF_RHEO = Set.of("EXPLAIN", "SIBLINGS", "STATUS");
  private static final Set<String> NOT_IN_A_SESSION = Set.of("AUTH", "HELLO", "SELECT", "RESET", "QUIT", "MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH",
      "SUBSCRIBE", "PSUBSCRIBE", "MONITOR");
  private static final Set<String> DIALS = Set.of("LEVEL", "STRATEGY", "FRESH", "WITHIN", "AT", "SLA", "QUORUM", "GROUPS", "SCOPE", "VIEW", "SESSION",
      "RECEIPT", "MONITOR");

  /** Words that are texts, numbers or bytes. */
  static Command of(Object... words) {
    List<byte[]> all = new ArrayList<>(words.length);
    for (Object word : words) {
      all.add(word instanceof byte[] bytes ? bytes : String.valueOf(word).getBytes(StandardCharsets.UTF_8));
    }
    return new Command(all);
  }

  /** One of Jedis'. */
  static Command of(CommandArguments arguments) {
    List<byte[]> all = new ArrayList<>(arguments.size());
    for (Rawable word : arguments) {
      all.add(word.getRaw());
    }
    return new Command(all);
  }

  private String word(int index) {
    return index < words.size() ? new String(words.get(index), StandardCharsets.ISO_8859_1).toUpperCase(Locale.ROOT) : "";
  }

  /** Whether it writes nothing. */
  boolean isRead() {
    String first = word(0);
    return READS.contains(first) || first.equals("RHEO") && READS_OF_RHEO.contains(word(1)) || first.equals("MEMORY") && word(1).equals("USAGE");
  }

  /** How many milliseconds it asks the server to wait before it answers. */
  long waits() {
    if (words.size() != 3 || !word(0).equals("WAIT")) {
      return 0;
    }
    try {
      return Math.max(0, Math.min(Integer.MAX_VALUE, Long.parseLong(word(2))));
    } catch (NumberFormatException refusedByTheServer) {
      return 0;
    }
  }

  /** Refuses what would change the connection rather than be part of the session. */
  void fits() {
    String first = word(0);
    boolean own = NOT_IN_A_SESSION.contains(first) || first.equals("RHEO") && DIALS.contains(word(1)) || first.equals("CLIENT") && word(1).equals("SETNAME");
    if (own) {
      throw new RheostatException.Refused(
          first + " " + word(1) + " is about a connection, and a session has none of its own: use the session's methods");
    }
  }

  /** As Jedis takes it. */
  CommandArguments arguments() {
    byte[] name = words.get(0);
    CommandArguments arguments = new CommandArguments((ProtocolCommand) () -> name);
    words.subList(1, words.size()).forEach(arguments::add);
    return arguments;
  }
}
