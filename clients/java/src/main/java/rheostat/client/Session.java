package rheostat.client;

import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;
import java.util.function.Supplier;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.Connection;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;

/**
 * What one user has seen and written in one keyspace, and the operations on it. One operation goes on at a time: threads that share a session wait for each other.
 *
 * <p>An operation that fails leaves the token as it was: what it may have written is then not part of the session. Operations throw {@link RheostatException}.
 */
public final class Session {
  /** The header of a web request and of its answer that carries a session's token. */
  public static final String HEADER = "Rheostat-Session";

  private static final SecureRandom RANDOM = new SecureRandom();

  private final Client client;
  private final String keyspace;
  private final State state;
  private volatile Dial dial;

  /** What the views of one session share. */
  static final class State {
    final ReentrantLock turn = new ReentrantLock(true);
    volatile String token;
    volatile Quality quality = Quality.NONE;
    private long name = RANDOM.nextLong() >>> 1;
    private long number;

    State(String token) {
      this.token = token;
    }

    /** Names the next update of counters, at its end. */
    private Command named(List<Object> words) {
      number += 1;
      words.addAll(List.of("ID", name, number));
      return Command.of(words.toArray());
    }

    /** An update's end is not known: those that follow have another client's name, since only one of a client may be under way. */
    private void rename() {
      name = RANDOM.nextLong() >>> 1;
      number = 0;
    }
  }

  /** What ends with it is closed without an exception. */
  public interface Scope extends AutoCloseable {
    @Override
    void close();
  }

  Session(Client client, String keyspace, State state, Dial dial) {
    this.client = client;
    this.keyspace = keyspace;
    this.state = state;
    this.dial = dial;
  }

  /** The keyspace's name or number; null is that of the pools. */
  public String keyspace() {
    return keyspace;
  }

  /** The session's token; empty before its first operation. */
  public String token() {
    return state.token;
  }

  /** How good the session's last answer was. */
  public Quality quality() {
    return state.quality;
  }

  /** What operations ask for beside. */
  public Dial dial() {
    return dial;
  }

  /** The header for a web request to another service, or for an answer. */
  public Map<String, String> headers() {
    String token = token();
    return token.isEmpty() ? Map.of() : Map.of(HEADER, token);
  }

  /** A session that has seen the same, at another client: of other regions, or of these in another order. From now on they are two. */
  public Session at(Client client) {
    return new Session(client, keyspace, new State(token()), dial);
  }

  /** This same session, asking for something else: {@code session.withDial(Dial.NONE.withLevel("eventual")).get(key)}. */
  public Session withDial(Dial dial) {
    return new Session(client, keyspace, state, dial);
  }

  /** Sets what operations ask for beside. */
  public void setDial(Dial dial) {
    this.dial = dial;
  }

  /** Sets the level that operations ask for; null is the keyspace's own. */
  public void setLevel(String level) {
    dial = dial.withLevel(level);
  }

  /** Sets the service level that reads are served under: a name, or entries from best to least; {@code none} is none at all, null the keyspace's own. */
  public void setServiceLevel(String serviceLevel) {
    dial = dial.withServiceLevel(serviceLevel);
  }

  /** Makes this the current session of this thread, until the scope is closed: commands of {@link Client#redis} belong to it. */
  public Scope asCurrent() {
    Session before = Client.setCurrent(this);
    return () -> Client.setCurrent(before);
  }

  /** Jedis' commands, in this session. */
  public UnifiedJedis redis() {
    return new SessionJedis(client, () -> this);
  }

  /** Sees that the servers take this session's token and what it asks for. */
  public void check() {
    perform(List::of, false, false);
  }

  /** Takes in what the session of {@code token} has seen and written: from now on this session sees at least that. */
  public void merge(String token) {
    if (!token.isEmpty()) {
      one(false, "RHEO", "SESSION", "MERGE", token);
    }
  }

  /** The value of {@code key}. */
  public Read get(String key) {
    Done done = one(false, "GET", key);
    return new Read((byte[]) done.reply(), done.quality);
  }

  /** Writes {@code value} to {@code key}. Never sent twice. */
  public Version put(String key, String value) {
    return put(key, value.getBytes(StandardCharsets.UTF_8), null);
  }

  /** Writes {@code value} to {@code key}, for a time; null is for ever. Never sent twice. */
  public Version put(String key, byte[] value, Duration expiresAfter) {
    return written(one(true, withExpiry(expiresAfter, "SET", key, value)));
  }

  /** Writes if the key is as {@code condition} says, in a keyspace that decides such writes; null where it is not. */
  public Version putIf(String key, String value, Condition condition) {
    return putIf(key, value.getBytes(StandardCharsets.UTF_8), condition, null);
  }

  /** As the other one, for a time. */
  public Version putIf(String key, byte[] value, Condition condition, Duration expiresAfter) {
    Object[] words = condition.expected != null
        ? withExpiry(expiresAfter, "RHEO", "CAS", key, condition.expected, value)
        : withExpiry(expiresAfter, "SET", key, value, condition.word);
    Done done = one(true, words);
    return done.reply() == null || Long.valueOf(0).equals(done.reply()) ? null : written(done);
  }

  /** Writes several keys of one partition, which appear together in every data center. */
  public Version putMany(Map<String, String> values) {
    if (values.isEmpty()) {
      throw new RheostatException.Refused("nothing to write");
    }
    List<Object> words = new ArrayList<>(List.of("MSET"));
    values.forEach((key, value) -> words.addAll(List.of(key, value)));
    return written(one(true, words.toArray()));
  }

  /** Deletes {@code key}; whether it was there. */
  public boolean delete(String key) {
    return Long.valueOf(1).equals(one(true, "DEL", key).reply());
  }

  /** Values of {@code keys}, of any partitions, from one snapshot. */
  public Many readTransaction(List<String> keys) {
    if (keys.isEmpty()) {
      throw new RheostatException.Refused("a transaction of no keys");
    }
    List<Object> words = new ArrayList<>(List.of("MGET"));
    words.addAll(keys);
    Done done = one(false, words.toArray());
    return new Many(Replies.bytes(done.reply()), done.quality);
  }

  /** Waits until so many other data centers have this session's writes on disk, for at most {@code timeout}; how many have. */
  public int waitFor(int dataCenters, Duration timeout) {
    return ((Long) one(false, "WAIT", dataCenters, Dial.milliseconds(timeout)).reply()).intValue();
  }

  /** All values of {@code key} that stand side by side; in keyspaces of protocol {@code quorum}. */
  public Siblings siblings(String key) {
    List<?> reply = (List<?>) one(false, "RHEO", "SIBLINGS", key).reply();
    List<byte[]> values = Replies.bytes(reply.get(1));
    values.removeIf(value -> value == null);
    return new Siblings(values, Replies.text(reply.get(0)));
  }

  /** Writes in the place of the values that {@code context} says, and of no others; the new context. */
  public String replace(String key, byte[] value, String context) {
    return Replies.text(one(true, "RHEO", "PUT", key, value, "CONTEXT", context).reply());
  }

  /** The value of {@code key}; null if there is none. Where several stand side by side, {@code resolve} makes one of them, which is written in their place. */
  public byte[] resolve(String key, Function<List<byte[]>, byte[]> resolve) {
    Siblings seen = siblings(key);
    if (seen.values().size() < 2) {
      return seen.values().isEmpty() ? null : seen.values().get(0);
    }
    byte[] value = resolve.apply(seen.values());
    replace(key, value, seen.context());
    return value;
  }

  /** The counter at {@code key}. Updates have scope local: they are decided at once, with the rights of the data center that is asked. */
  public Counter counter(String key) {
    return new Counter(this, key, Counter.Scope.LOCAL);
  }

  /** Adds to several counters of one partition, to all or to none; less than 0 decrements. Sent again as {@link Counter#add}. */
  public List<Long> addAll(Map<String, Long> additions, Counter.Scope scope) {
    if (additions.isEmpty()) {
      throw new RheostatException.Refused("nothing to add");
    }
    List<Object> words = new ArrayList<>();
    additions.forEach((key, delta) -> words.addAll(List.of(key, delta)));
    return addAll(words, scope);
  }

  /** Keys, each followed by what is added to it. */
  List<Long> addAll(List<Object> additions, Counter.Scope scope) {
    List<Object> words = new ArrayList<>(List.of("RHEO", "COUNTER", "ADD"));
    words.addAll(additions);
    words.add(scope.name());
    Object reply = perform(() -> List.of(state.named(words)), true, true).reply();
    List<Long> values = new ArrayList<>();
    if (reply instanceof List<?> several) {
      several.forEach(value -> values.add((Long) value));
    } else {
      values.add((Long) reply);
    }
    return values;
  }

  /** What came of commands. */
  record Done(List<Object> replies, Quality quality) {
    Object reply() {
      return replies.isEmpty() ? null : replies.get(0);
    }
  }

  /** One command of ours. */
  Done one(boolean writes, Object... words) {
    return perform(() -> List.of(Command.of(words)), writes, false);
  }

  /** One of Jedis' commands, with a reply as Jedis has it. */
  <T> T execute(CommandObject<T> object) {
    Command command = Command.of(object.getArguments());
    command.fits();
    return object.getBuilder().build(perform(() -> List.of(command), !command.isRead(), false).reply());
  }

  /** Several of Jedis' commands; error replies are values. */
  List<Object> executeAll(List<Command> commands, boolean transaction) {
    commands.forEach(Command::fits);
    if (commands.isEmpty()) {
      return List.of();
    }
    List<Command> all = new ArrayList<>(commands);
    if (!transaction) {
      // One that comes alone would throw its error.
      all.add(Command.of("PING"));
      List<Object> replies = perform(() -> all, !commands.stream().allMatch(Command::isRead), false).replies;
      return replies.subList(0, commands.size());
    }
    all.add(0, Command.of("MULTI"));
    all.add(Command.of("EXEC"));
    List<Object> replies = perform(() -> all, true, false).replies;
    Object made = replies.get(replies.size() - 1);
    if (made instanceof JedisDataException refused) {
      Object first = replies.subList(1, replies.size() - 1).stream().filter(JedisDataException.class::isInstance).findFirst().orElse(refused);
      throw RheostatException.ofReply((JedisDataException) first);
    }
    return new ArrayList<>((List<?>) made);
  }

  /**
   * What comes of commands. A single one that is answered with an error throws it, and so does what makes none of them be done.
   *
   * <p>What writes is sent when the server has said that it took session and level; so where it did not, nothing was changed. Reads go along with them.
   */
  private Done perform(Supplier<List<Command>> commands, boolean writes, boolean named) {
    state.turn.lock();
    try {
      return attempts(commands.get(), writes, named);
    } finally {
      state.turn.unlock();
    }
  }

  private Done attempts(List<Command> commands, boolean writes, boolean named) {
    Options options = client.options;
    long until = System.nanoTime() + Dial.nanos(options.deadline());
    int left = options.readRetries();
    long pause = Dial.nanos(options.retryPause());
    Set<Client.Region> passed = new HashSet<>();
    Set<Client.Region> renewed = new HashSet<>();
    Client.Region doneAt = null;
    RheostatException doubt = null;
    Client.Region at = client.choose(passed);
    while (true) {
      Attempt attempt = new Attempt(at);
      RheostatException error;
      try {
        Done done = attempt.make(commands, writes);
        if (commands.size() != 1 || !(done.reply() instanceof JedisDataException refused)) {
          return done;
        }
        error = RheostatException.ofReply(refused);
        boolean passing = error instanceof RheostatException.Busy || error instanceof RheostatException.Unreachable;
        boolean uncertain = error instanceof RheostatException.Unreachable || error instanceof RheostatException.Timeout;
        if (named && uncertain) {
          doneAt = at;
          doubt = error;
        }
        if (!(passing && !writes) && !(named && (passing || uncertain))) {
          throw error;
        }
      } catch (Client.Region.NoConnection none) {
        client.avoid(at);
        passed.add(at);
        error = new RheostatException.Unreachable(none.getMessage(), doneAt == null, none);
        Client.Region next = doneAt == null ? client.choose(passed) : null;
        if (next != null) {
          at = next;
          continue;
        }
        passed.clear();
      } catch (JedisConnectionException lost) {
        boolean timedOut = lost.getCause() instanceof SocketTimeoutException;
        boolean may = attempt.sent || doneAt != null;
        error = timedOut ? new RheostatException.Timeout(lost.getMessage(), lost) : new RheostatException.Unreachable(lost.getMessage(), !may, lost);
        if (attempt.sent) {
          if (!named) {
            throw error;
          }
          doneAt = at;
          doubt = error;
        } else if (renewed.add(at) && !timedOut) {
          // Connections of the pool may have been lost long ago, with their node; the next one is made anew.
          at.pool.clear();
          continue;
        } else if (!may) {
          client.avoid(at);
        }
      } catch (RheostatException refused) {
        if (attempt.sent || !isForgotten(refused.getCause()) || !renewed.add(at)) {
          throw ended(refused, doubt);
        }
        // Others of the pool would have to show it, too.
        at.pool.clear();
        continue;
      }
      if (left <= 0 || System.nanoTime() + pause - until > 0) {
        throw ended(error, doubt);
      }
      left -= 1;
      try {
        Thread.sleep(pause / 1_000_000, (int) (pause % 1_000_000));
      } catch (InterruptedException interrupted) {
        Thread.currentThread().interrupt();
        throw ended(error, doubt);
      }
      pause *= 2;
      if (doneAt == null) {
        at = client.choose(passed);
      }
    }
  }

  /** An operation's error, where {@code doubt} is that of a named update's last try that may have made it. A later try that changed nothing does not say that none did. */
  private RheostatException ended(RheostatException error, RheostatException doubt) {
    if (doubt == null) {
      return error;
    }
    state.rename();
    boolean ofAllTries = error instanceof RheostatException.Timeout || error instanceof RheostatException.Unreachable
        || error instanceof RheostatException.Server || error instanceof RheostatException.NoRights;
    return ofAllTries ? error : doubt;
  }

  /** One try, at one region. */
  private final class Attempt {
    private final Client.Region region;
    /** Whether what writes may have been sent. */
    private boolean sent;

    Attempt(Client.Region region) {
      this.region = region;
    }

    Done make(List<Command> commands, boolean writes) throws Client.Region.NoConnection {
      Connection connection = region.take(client.options.deadline());
      boolean clean = false;
      try {
        List<Command> before = new ArrayList<>();
        List<Command> after = new ArrayList<>(dial.after());
        after.add(Command.of("RHEO", "SESSION", "RESET"));
        if (keyspace != null) {
          before.add(Command.of("SELECT", keyspace));
          after.add(Command.of("SELECT", region.database(connection)));
        }
        String token = state.token;
        before.add(token.isEmpty() ? Command.of("RHEO", "SESSION", "RESET") : Command.of("RHEO", "SESSION", "RESUME", token));
        before.addAll(dial.before());
        List<Command> tail = new ArrayList<>(commands);
        tail.add(Command.of("RHEO", "QUALITY"));
        tail.add(Command.of("RHEO", "SESSION", "GET"));
        tail.addAll(after);
        long bound = dial.within() == null ? 0 : Math.max(0, Math.min(Integer.MAX_VALUE, Dial.millis(dial.within()))) * commands.size();
        List<Object> replies;
        if (writes) {
          JedisDataException wrong = refusal(talk(connection, before, 0));
          if (wrong != null) {
            if (!isForgotten(wrong)) {
              talk(connection, after, 0);
              clean = true;
            }
            throw region.refusal(wrong);
          }
          sent = true;
          replies = talk(connection, tail, bound);
        } else {
          before.addAll(tail);
          int ready = before.size() - tail.size();
          replies = talk(connection, before, bound);
          JedisDataException wrong = refusal(replies.subList(0, ready));
          if (wrong != null) {
            clean = !isForgotten(wrong);
            throw region.refusal(wrong);
          }
          replies = replies.subList(ready, replies.size());
        }
        List<Object> ends = replies.subList(commands.size(), replies.size());
        for (Object reply : ends) {
          if (reply instanceof JedisDataException unclear) {
            throw new RheostatException.Server("the session could not be told from the connection: " + unclear.getMessage(), unclear);
          }
        }
        clean = true;
        state.quality = Replies.quality(ends.get(0));
        state.token = Replies.text(ends.get(1));
        region.avoidedUntil = null;
        return new Done(new ArrayList<>(replies.subList(0, commands.size())), state.quality);
      } finally {
        region.give(connection, clean);
      }
    }
  }

  /** Sends commands together; error replies are values. What the server is asked to wait, and the {@code bound} within which it may, come beside the time that a reply may take. */
  private static List<Object> talk(Connection connection, List<Command> commands, long bound) {
    commands.forEach(command -> connection.sendCommand(command.arguments()));
    int usual = connection.getSoTimeout();
    long more = bound + commands.stream().mapToLong(Command::waits).sum();
    if (usual == 0 || more == 0) {
      return connection.getMany(commands.size());
    }
    connection.setSoTimeout((int) Math.min(Integer.MAX_VALUE, usual + more));
    // Where it throws, the connection is not used again.
    List<Object> replies = connection.getMany(commands.size());
    connection.setSoTimeout(usual);
    return replies;
  }

  /** Whether this reply says that the connection has to show its password again, as after a change of users. The next one shows what is known then. */
  private static boolean isForgotten(Throwable reply) {
    return reply instanceof JedisDataException && String.valueOf(reply.getMessage()).startsWith("NOAUTH");
  }

  /** The reply by which the server does not take the session; null if it does. */
  private static JedisDataException refusal(List<Object> replies) {
    JedisDataException first = null;
    for (Object reply : replies) {
      if (reply instanceof JedisDataException refused) {
        if (RheostatException.ofReply(refused) instanceof RheostatException.NotRheostat) {
          return refused;
        }
        first = first == null ? refused : first;
      }
    }
    return first;
  }

  private static Object[] withExpiry(Duration expiresAfter, Object... words) {
    List<Object> all = new ArrayList<>(List.of(words));
    if (expiresAfter != null) {
      all.addAll(List.of("PX", Dial.milliseconds(expiresAfter)));
    }
    return all.toArray();
  }

  private static Version written(Done done) {
    if (done.quality.version() == null) {
      throw new RheostatException.Server("the answer does not say which version was written", null);
    }
    return done.quality.version();
  }
}
