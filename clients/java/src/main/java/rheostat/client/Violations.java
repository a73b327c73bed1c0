package rheostat.client;

import java.io.IOException;
import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import redis.clients.jedis.Connection;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;

/**
 * Violations that monitors tell, one after the other, on a connection of its own that the regions' pools make and do not count.
 *
 * <p>Another region is asked when the first cannot be reached. What is not taken yet waits, up to 1024 messages; those that are left out then are said as {@link Said.Missed}. A
 * subscription takes two threads. Threads may share it.
 */
public final class Violations implements AutoCloseable {
  /** What is said and not taken yet. */
  private static final int WAITING = 1024;
  /** Pauses between two rounds through the regions; each is twice as long as the one before. */
  private static final long FIRST_PAUSE_MS = 200;
  private static final long LONGEST_PAUSE_MS = 5000;

  private final Client client;
  private final String monitor;
  private final int silenceAfterMs;

  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final ArrayDeque<Said> queue = new ArrayDeque<>();
  private int leftOut;
  private long missed;
  private Line line;
  private boolean closed;
  private RheostatException failed;

  private Violations(Client client, String monitor) {
    this.client = client;
    this.monitor = monitor;
    this.silenceAfterMs = (int) Math.min(Integer.MAX_VALUE, Math.max(1, Dial.millis(client.options.silenceAfter())));
  }

  /**
   * Of the predicate {@code monitor}, or of all if that is empty, from now on.
   *
   * @throws RheostatException.Unauthenticated the user may not: it takes the role {@code operate}
   * @throws RheostatException.NotRheostat the server knows no monitors; {@link RheostatException.Refused} if it knows no RESP3
   * @throws RheostatException.Busy too many listen
   * @throws RheostatException.Unreachable no region can be reached; {@link RheostatException.Timeout} if none answers
   */
  public static Violations listen(Client client, String monitor) {
    Violations made = new Violations(client, monitor);
    made.line = made.subscribe();
    made.start("hears", made::run);
    made.start("asks", made::ask);
    return made;
  }

  private void start(String does, Runnable work) {
    Thread thread = new Thread(work, "rheostat-violations-" + does);
    thread.setDaemon(true);
    thread.start();
  }

  /** How often violations may have been missed so far. */
  public long missed() {
    lock.lock();
    try {
      return missed;
    } finally {
      lock.unlock();
    }
  }

  /** As the other one, for as long as it takes; null when the subscription is closed. */
  public Said next() throws InterruptedException {
    return next(Duration.ofNanos(Long.MAX_VALUE));
  }

  /**
   * What is told next; null when this time has passed or the subscription is closed.
   *
   * <p>While nobody can be reached the regions are asked again and again. What a server refuses then is thrown as by {@link #listen}, and ends the subscription.
   */
  public Said next(Duration within) throws InterruptedException {
    long left = Dial.nanos(within);
    lock.lockInterruptibly();
    try {
      while (true) {
        Said said = queue.isEmpty() && leftOut > 0 ? excess() : queue.poll();
        if (said != null) {
          missed += said instanceof Said.Missed ? 1 : 0;
          return said;
        }
        if (failed != null) {
          throw failed;
        }
        if (closed || left <= 0) {
          return null;
        }
        left = changed.awaitNanos(left);
      }
    } finally {
      lock.unlock();
    }
  }

  /** Ends the subscription, and the wait of whoever waits for what comes next. */
  @Override
  public void close() {
    lock.lock();
    try {
      closed = true;
      queue.clear();
      leftOut = 0;
      changed.signalAll();
    } finally {
      lock.unlock();
    }
    Line last = current();
    if (last != null) {
      last.close();
    }
  }

  private Line current() {
    lock.lock();
    try {
      return line;
    } finally {
      lock.unlock();
    }
  }

  private boolean isOver() {
    lock.lock();
    try {
      return closed || failed != null;
    } finally {
      lock.unlock();
    }
  }

  private Said excess() {
    Said said = new Said.Missed("this subscriber reads too slowly: " + leftOut + " events were left out");
    leftOut = 0;
    return said;
  }

  private void put(Said said) {
    lock.lock();
    try {
      if (closed) {
        return;
      }
      if (queue.size() >= WAITING) {
        leftOut++;
        return;
      }
      if (leftOut > 0) {
        queue.add(excess());
      }
      queue.add(said);
      changed.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** Waits; false if the subscription is over. */
  private boolean rest(long ms) {
    lock.lock();
    try {
      for (long left = TimeUnit.MILLISECONDS.toNanos(ms); left > 0 && !closed && failed == null; left = changed.awaitNanos(left)) {
        // Somebody may have been told something meanwhile.
      }
      return !closed && failed == null;
    } catch (InterruptedException nobodyDoes) {
      return false;
    } finally {
      lock.unlock();
    }
  }

  /** Hears, and subscribes again, until the subscription is over. */
  private void run() {
    try {
      while (true) {
        Line heard = current();
        JedisException lost = heard.hear();
        heard.close();
        if (isOver()) {
          return;
        }
        if (isTimeout(lost)) {
          // Its connections stay, and nobody answers: others are asked first.
          client.avoid(heard.region);
        }
        put(new Said.Silence(heard.connection + ": " + lost.getMessage()));
        Line next = again();
        if (next == null) {
          return;
        }
        lock.lock();
        try {
          line = next;
        } finally {
          lock.unlock();
        }
        if (isOver()) {
          next.close();
          return;
        }
        put(new Said.Missed("the node that tells could not be reached for a while"));
      }
    } catch (RheostatException error) {
      lock.lock();
      try {
        failed = error;
        changed.signalAll();
      } finally {
        lock.unlock();
      }
    }
  }

  /** Subscribes again; null if the subscription was closed meanwhile. */
  private Line again() {
    for (long pause = FIRST_PAUSE_MS;; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      try {
        return subscribe();
      } catch (RheostatException.Unreachable | RheostatException.Timeout | RheostatException.Busy passing) {
        // So that not all come back at one moment.
        if (!rest(ThreadLocalRandom.current().nextLong(pause / 2, pause))) {
          return null;
        }
      }
    }
  }

  /** Asks whether somebody is there, twice within the time after which there is silence. */
  private void ask() {
    while (rest(Math.max(1, silenceAfterMs / 2))) {
      current().ask();
    }
  }

  /** Listens at the first region that can be reached and has a place. */
  private Line subscribe() {
    Set<Client.Region> passed = new HashSet<>();
    RheostatException last = null;
    for (Client.Region region = client.choose(passed); region != null; region = client.choose(passed)) {
      try {
        Line made = open(region);
        region.avoidedUntil = null;
        return made;
      } catch (RheostatException.Busy | RheostatException.Unreachable | RheostatException.Timeout passing) {
        last = passing;
      } catch (Client.Region.NoConnection none) {
        client.avoid(region);
        boolean timedOut = isTimeout(none.getCause()) && !String.valueOf(none.getMessage()).startsWith("Failed to connect");
        last = timedOut ? new RheostatException.Timeout(none.getMessage(), none) : new RheostatException.Unreachable(none.getMessage(), true, none);
      }
      passed.add(region);
    }
    throw last;
  }

  private Line open(Client.Region region) throws Client.Region.NoConnection {
    Connection connection = null;
    try {
      connection = region.pool.getFactory().makeObject().getObject();
      if (connection.getSoTimeout() == 0) {
        connection.setSoTimeout(silenceAfterMs);
      }
      connection.executeCommand(Command.of("HELLO", "3").arguments());
      Command listen = monitor.isEmpty() ? Command.of("RHEO", "MONITOR", "LISTEN") : Command.of("RHEO", "MONITOR", "LISTEN", monitor);
      connection.executeCommand(listen.arguments());
      connection.setSoTimeout(silenceAfterMs);
      return new Line(region, connection);
    } catch (Exception error) {
      if (connection != null) {
        connection.disconnect();
      }
      if (!(error instanceof JedisDataException reply)) {
        throw new Client.Region.NoConnection(error);
      }
      RheostatException made = region.refusal(reply);
      String said = String.valueOf(reply.getMessage()).toLowerCase(Locale.ROOT);
      if (made.getClass() == RheostatException.Refused.class && (said.contains("hello") || said.contains("noproto"))) {
        throw new RheostatException.Refused("the server does not speak RESP3, in which monitors are heard: " + made.getMessage(), error);
      }
      throw made;
    }
  }

  private static boolean isTimeout(Throwable error) {
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (cause instanceof SocketTimeoutException) {
        return true;
      }
    }
    return false;
  }

  /** A connection that listens: one thread reads, another one asks. */
  private final class Line {
    private final Client.Region region;
    private final Connection connection;
    private boolean isOpen = true;

    Line(Client.Region region, Connection connection) {
      this.region = region;
      this.connection = connection;
    }

    /** Tells what comes; why it comes no longer. An error reply to the question is one, too: who is refused is told nothing more. */
    JedisException hear() {
      try {
        while (true) {
          if (connection.getUnflushedObject() instanceof List<?> message && message.size() == 2 && "monitor".equals(Replies.text(message.get(0)))) {
            put(Violation.ofPush(message.get(1)));
          }
        }
      } catch (JedisException lost) {
        return lost;
      }
    }

    /** Sends the question. Jedis would make a closed connection anew, so that is not done at once with closing. */
    synchronized void ask() {
      if (isOpen) {
        try {
          connection.sendCommand(Command.of("PING").arguments());
          connection.getMany(0);
        } catch (JedisException lost) {
          // The reader sees it as well.
        }
      }
    }

    synchronized void close() {
      isOpen = false;
      try {
        connection.forceDisconnect();
      } catch (IOException closedAlready) {
        // As it should be.
      }
    }
  }
}
