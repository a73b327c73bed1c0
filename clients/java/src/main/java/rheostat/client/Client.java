package rheostat.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Set;
import redis.clients.jedis.CommandObject;
import redis.clients.jedis.Connection;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.Pool;

/** Your Jedis pools, one for each region, the nearest first. Threads may share it. */
public final class Client {
  private static final ThreadLocal<Session> CURRENT = new ThreadLocal<>();

  final Options options;
  final List<Region> regions;
  private final UnifiedJedis redis;

  /** Any node of a region serves every key, so one of its pools is enough. They keep their size, timeouts, TLS and passwords. */
  public Client(JedisPooled... regions) {
    this(Options.DEFAULT, regions);
  }

  /** As the other one, with options. */
  public Client(Options options, JedisPooled... regions) {
    this(options, Arrays.stream(regions).map(JedisPooled::getPool).toList());
  }

  /** As the others, of pools that are made otherwise. */
  public Client(Options options, List<Pool<Connection>> regions) {
    if (regions.isEmpty()) {
      throw new RheostatException.Refused("no region to connect to");
    }
    this.options = options;
    this.regions = new ArrayList<>();
    regions.forEach(pool -> this.regions.add(new Region(pool, this.regions.size() + 1)));
    this.redis = new SessionJedis(this, Client::currentSession);
  }

  /** A new session in the keyspace that the pools' connections are in. */
  public Session session() {
    return resume(null, "");
  }

  /** A new session in {@code keyspace} (name or number). */
  public Session session(String keyspace) {
    return resume(keyspace, "");
  }

  /** The session in {@code keyspace} (null is that of the pools) that {@code token} stands for. A token that does not belong here is refused by the first operation. */
  public Session resume(String keyspace, String token) {
    return new Session(this, keyspace, new Session.State(token), Dial.NONE);
  }

  /** Jedis' commands, in the current session; without one they go to the first region as they are. */
  public UnifiedJedis redis() {
    return redis;
  }

  /** The session that this thread's commands belong to, where {@link Session#asCurrent} or the filter has set one; else null. */
  public static Session currentSession() {
    return CURRENT.get();
  }

  /** Makes {@code session} the current one of this thread; the one before. */
  static Session setCurrent(Session session) {
    Session before = CURRENT.get();
    if (session == null) {
      CURRENT.remove();
    } else {
      CURRENT.set(session);
    }
    return before;
  }

  /** The first region that is not passed over, else the first of those that are and have not been tried now; null if there is none. */
  Region choose(Set<Region> passed) {
    long now = System.nanoTime();
    Region left = null;
    for (Region region : regions) {
      if (passed.contains(region)) {
        continue;
      }
      if (region.avoidedUntil == null || region.avoidedUntil - now <= 0) {
        return region;
      }
      left = left == null ? region : left;
    }
    return left;
  }

  void avoid(Region region) {
    region.avoidedUntil = System.nanoTime() + Dial.nanos(options.returnAfter());
  }

  /** A command without a session. */
  <T> T plain(CommandObject<T> command) {
    try (Connection connection = regions.get(0).pool.getResource()) {
      return connection.executeCommand(command);
    }
  }

  /** One region's pool. */
  static final class Region {
    final Pool<Connection> pool;
    volatile Long avoidedUntil;
    private final int place;
    private volatile Integer database;

    Region(Pool<Connection> pool, int place) {
      this.pool = pool;
      this.place = place;
    }

    /** No connection can be made, or the node opens its data: nothing was sent. */
    static final class NoConnection extends Exception {
      NoConnection(Throwable cause) {
        this(cause.getMessage(), cause);
      }

      private NoConnection(String message, Throwable cause) {
        super(message, cause);
      }
    }

    /**
     * What it means that a connection, or the session on it, is refused.
     *
     * @throws NoConnection the node opens its data after a restart. It does nothing: it is as if no connection to it could be made
     */
    RheostatException refusal(JedisDataException reply) throws NoConnection {
      RheostatException error = RheostatException.ofReply(reply);
      if (error instanceof RheostatException.Unreachable nobody && nobody.nothingSent()) {
        // Jedis does not tell a pool's address.
        throw new NoConnection("region " + place + ": " + error.getMessage(), error);
      }
      return error;
    }

    /** A connection for one operation, within a time unless the pool has one of its own. */
    Connection take(Duration within) throws NoConnection {
      try {
        Duration own = pool.getMaxWaitDuration();
        return pool.borrowObject(own.isNegative() ? Duration.ofNanos(Dial.nanos(within)) : own);
      } catch (NoSuchElementException none) {
        throw new RheostatException.Busy("the pool has no connection left: " + none.getMessage(), none);
      } catch (JedisDataException error) {
        throw refusal(error);
      } catch (InterruptedException interrupted) {
        Thread.currentThread().interrupt();
        throw new RheostatException.Busy("interrupted while it waited for a connection", interrupted);
      } catch (Exception error) {
        if (error.getCause() instanceof JedisDataException reply) {
          throw refusal(reply);
        }
        throw new NoConnection(error);
      }
    }

    void give(Connection connection, boolean clean) {
      if (clean && !connection.isBroken()) {
        pool.returnResource(connection);
      } else {
        pool.returnBrokenResource(connection);
      }
    }

    /** The keyspace that the pool's connections are in: asked once. Refuses a pool whose connections share one session by their name. */
    int database(Connection connection) throws NoConnection {
      Integer known = database;
      if (known == null) {
        int found = 0;
        Object info;
        try {
          info = connection.executeCommand(Command.of("CLIENT", "INFO").arguments());
        } catch (JedisDataException error) {
          throw refusal(error);
        }
        for (String field : Replies.text(info).split(" ")) {
          if (field.startsWith("db=")) {
            found = Integer.parseInt(field.substring(3).trim());
          } else if (field.startsWith("name=rheo:") && field.contains("session=")) {
            throw new RheostatException.Refused(
                "the client's " + field + " makes all connections of the pool one session; leave it out, and each user has one of their own");
          }
        }
        known = found;
        database = known;
      }
      return known;
    }
  }
}
