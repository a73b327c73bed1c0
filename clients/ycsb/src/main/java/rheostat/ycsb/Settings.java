package rheostat.ycsb;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.stream.Collectors;

/**
 * The binding's properties, checked. What each means is in the README of this folder.
 *
 * @param addresses where servers listen; client threads are spread over them in turn
 * @param transport how requests travel
 * @param server what listens there
 * @param keyspace name or number
 * @param session what one session spans
 * @param level empty: the keyspace's own
 * @param guarantees those of level {@code session}; none named is all
 * @param strategy how a read-only transaction finds its snapshot
 * @param layout how a record is kept
 * @param scan what a scan does
 * @param timeoutMs bound of connecting and of every operation, in milliseconds
 * @param password empty: none
 * @param fields names of a record's fields, from YCSB's own properties
 * @param keyDigits least number of digits in a key, YCSB's {@code zeropadding}
 */
record Settings(
    List<Address> addresses,
    Transport transport,
    Server server,
    String keyspace,
    SessionSpan session,
    Level level,
    List<Guarantee> guarantees,
    Strategy strategy,
    LayoutKind layout,
    Scan scan,
    int timeoutMs,
    String password,
    List<String> fields,
    int keyDigits) {

  /** A server's host and port. */
  record Address(String host, int port) {
    @Override
    public String toString() {
      return host + ":" + port;
    }
  }

  enum Transport { RESP, GRPC }

  enum Server { RHEOSTAT, REDIS }

  /** One session for each client thread, or a new one for each operation. */
  enum SessionSpan { THREAD, NONE }

  enum Level { DEFAULT, EVENTUAL, CAUSAL, SESSION, LOCAL, STRONG }

  enum Guarantee { MONOTONIC_READS, READ_YOUR_WRITES, MONOTONIC_WRITES, WRITES_FOLLOW_READS }

  enum Strategy { AUTO, COORDINATED, PREDICTED }

  enum LayoutKind { KEYS, VALUE }

  enum Scan { REFUSE, CONSECUTIVE }

  private static final int MAX_TIMEOUT_MS = 600_000;
  private static final int MAX_FIELDS = 10_000;
  private static final int MAX_KEY_DIGITS = 100;

  /** Reads the properties. */
  static Settings of(Properties properties) throws SettingException {
    Transport transport = choice(properties, "rheostat.transport", Transport.RESP);
    Server server = choice(properties, "rheostat.server", Server.RHEOSTAT);
    SessionSpan session = choice(properties, "rheostat.session", SessionSpan.THREAD);
    Strategy strategy = choice(properties, "rheostat.strategy", Strategy.AUTO);
    Scan scan = choice(properties, "rheostat.scan", Scan.REFUSE);
    String keyspace = properties.getProperty("rheostat.keyspace", "0").trim();
    List<Guarantee> guarantees = new ArrayList<>();
    Level level = level(properties, guarantees);
    String password = properties.getProperty("rheostat.password", "");
    if (keyspace.isEmpty()) {
      throw new SettingException("rheostat.keyspace is empty: allowed are a keyspace's name or number");
    }
    if (server == Server.REDIS) {
      plain("rheostat.transport", transport == Transport.RESP, "resp");
      plain("rheostat.session", session == SessionSpan.THREAD, "thread");
      plain("rheostat.level", level == Level.DEFAULT, "default");
      plain("rheostat.strategy", strategy == Strategy.AUTO, "auto");
    }
    if (scan == Scan.CONSECUTIVE && !properties.getProperty("insertorder", "hashed").equals("ordered")) {
      throw new SettingException("rheostat.scan=consecutive counts on from a key's number, which needs YCSB's insertorder=ordered");
    }
    String defaultPort = transport == Transport.GRPC ? "7401" : "7400";
    List<Address> addresses = addresses(properties.getProperty("rheostat.hosts", "127.0.0.1:" + defaultPort));
    int timeoutMs = number(properties, "rheostat.timeout.ms", "10000", 1, MAX_TIMEOUT_MS);
    int fieldCount = number(properties, "fieldcount", "10", 1, MAX_FIELDS);
    String prefix = properties.getProperty("fieldnameprefix", "field");
    List<String> fields = new ArrayList<>();
    for (int i = 0; i < fieldCount; i++) {
      fields.add(prefix + i);
    }
    return new Settings(
        addresses,
        transport,
        server,
        keyspace,
        session,
        level,
        Collections.unmodifiableList(guarantees),
        strategy,
        choice(properties, "rheostat.fields", LayoutKind.KEYS),
        scan,
        timeoutMs,
        password,
        Collections.unmodifiableList(fields),
        number(properties, "zeropadding", "1", 0, MAX_KEY_DIGITS));
  }

  /** A whole number from {@code least} to {@code greatest}. */
  static int number(Properties properties, String name, String absent, int least, int greatest) throws SettingException {
    String text = properties.getProperty(name, absent).trim();
    try {
      int number = Integer.parseInt(text);
      if (number >= least && number <= greatest) {
        return number;
      }
    } catch (NumberFormatException error) {
      // Said below, as for a number out of range.
    }
    throw new SettingException(name + "=" + text + ": allowed are whole numbers from " + least + " to " + greatest);
  }

  /** The word that stands for a constant, in properties and towards the server. */
  static String word(Enum<?> constant) {
    return constant.name().toLowerCase(Locale.ROOT).replace('_', '-');
  }

  /** The level as the server spells it. */
  String levelWord() {
    return guarantees.isEmpty() ? word(level) : guarantees.stream().map(Settings::word).collect(Collectors.joining("+"));
  }

  private static void plain(String name, boolean holds, String needed) throws SettingException {
    if (!holds) {
      throw new SettingException("rheostat.server=redis sends only what Redis knows, which needs " + name + "=" + needed);
    }
  }

  private static <E extends Enum<E>> E choice(Properties properties, String name, E absent) throws SettingException {
    String text = properties.getProperty(name, word(absent)).trim();
    E chosen = constant(absent.getDeclaringClass(), text);
    if (chosen == null) {
      throw new SettingException(name + "=" + text + ": allowed are " + words(absent.getDeclaringClass()));
    }
    return chosen;
  }

  private static Level level(Properties properties, List<Guarantee> guarantees) throws SettingException {
    String text = properties.getProperty("rheostat.level", word(Level.DEFAULT)).trim();
    Level level = constant(Level.class, text);
    if (level != null) {
      return level;
    }
    for (String part : text.split("\\+", -1)) {
      Guarantee guarantee = constant(Guarantee.class, part);
      if (guarantee == null) {
        throw new SettingException(
            "rheostat.level=" + text + ": allowed are " + words(Level.class) + ", or some of " + words(Guarantee.class) + " with + between them");
      }
      guarantees.add(guarantee);
    }
    return Level.SESSION;
  }

  private static <E extends Enum<E>> E constant(Class<E> type, String text) {
    return Arrays.stream(type.getEnumConstants()).filter(each -> word(each).equals(text.toLowerCase(Locale.ROOT))).findFirst().orElse(null);
  }

  private static <E extends Enum<E>> String words(Class<E> type) {
    return Arrays.stream(type.getEnumConstants()).map(Settings::word).collect(Collectors.joining(", "));
  }

  private static List<Address> addresses(String text) throws SettingException {
    List<Address> addresses = new ArrayList<>();
    for (String part : text.split(",", -1)) {
      String address = part.trim();
      int colon = address.lastIndexOf(':');
      int port = -1;
      try {
        port = Integer.parseInt(address.substring(colon + 1));
      } catch (NumberFormatException error) {
        // Said below, as for a port out of range.
      }
      if (colon < 1 || port < 1 || port > 65535) {
        throw new SettingException("rheostat.hosts=" + text + ": allowed are host:port, several with commas between them");
      }
      addresses.add(new Address(address.substring(0, colon), port));
    }
    return Collections.unmodifiableList(addresses);
  }
}
