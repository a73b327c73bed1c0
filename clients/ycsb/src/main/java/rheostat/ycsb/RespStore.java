package rheostat.ycsb;

import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import site.ycsb.Status;

/**
 * A session over RESP: the server keeps it with the connection. A connection that breaks ends its session; the next operation connects again, with a
 * new one, and says so.
 */
final class RespStore implements Store {
  /** Rheostat's own commands. */
  private static final ProtocolCommand RHEO = () -> "RHEO".getBytes(StandardCharsets.US_ASCII);

  private static final byte[][] RESET = {Layout.bytes("SESSION"), Layout.bytes("RESET")};

  private final Settings settings;
  private final Settings.Address address;
  private Connection connection;
  private boolean connectedBefore;

  /** Connects at once. */
  RespStore(Settings settings, Settings.Address address) throws StoreException {
    this.settings = settings;
    this.address = address;
    connected();
  }

  @Override
  public byte[] get(byte[] key) throws StoreException {
    return (byte[]) call(Command.GET, key);
  }

  @Override
  public List<byte[]> getAll(List<byte[]> keys) throws StoreException {
    List<byte[]> values = new ArrayList<>(keys.size());
    for (Object value : (List<?>) call(Command.MGET, keys.toArray(byte[][]::new))) {
      values.add((byte[]) value);
    }
    if (values.size() != keys.size()) {
      throw new StoreException(Status.UNEXPECTED_STATE, address + " answered " + keys.size() + " keys with " + values.size() + " values", null);
    }
    return values;
  }

  @Override
  public void put(byte[] key, byte[] value) throws StoreException {
    call(Command.SET, key, value);
  }

  @Override
  public void putAll(List<byte[]> keys, List<byte[]> values) throws StoreException {
    byte[][] pairs = new byte[2 * keys.size()][];
    for (int i = 0; i < keys.size(); i++) {
      pairs[2 * i] = keys.get(i);
      pairs[2 * i + 1] = values.get(i);
    }
    call(Command.MSET, pairs);
  }

  @Override
  public boolean delete(List<byte[]> keys) throws StoreException {
    return (Long) call(Command.DEL, keys.toArray(byte[][]::new)) > 0;
  }

  @Override
  public void close() {
    if (connection != null) {
      connection.close();
      connection = null;
    }
  }

  private Object call(ProtocolCommand command, byte[]... arguments) throws StoreException {
    Connection open = connected();
    try {
      boolean fresh = settings.session() == Settings.SessionSpan.NONE;
      if (fresh) {
        open.sendCommand(RHEO, RESET);
      }
      open.sendCommand(command, arguments);
      Object reply = null;
      for (Object each : open.getMany(fresh ? 2 : 1)) {
        if (each instanceof JedisDataException error) {
          throw error;
        }
        reply = each;
      }
      return reply;
    } catch (JedisDataException error) {
      throw refused(error);
    } catch (JedisException error) {
      close();
      throw broken(error);
    }
  }

  private Connection connected() throws StoreException {
    if (connection == null) {
      connection = connect();
      if (connectedBefore && settings.server() == Settings.Server.RHEOSTAT && settings.session() == Settings.SessionSpan.THREAD) {
        Problems.say("the connection to " + address + " broke and its session with it; a new session begins");
      }
      connectedBefore = true;
    }
    return connection;
  }

  private Connection connect() throws StoreException {
    DefaultJedisClientConfig.Builder config = DefaultJedisClientConfig.builder();
    config.connectionTimeoutMillis(settings.timeoutMs()).socketTimeoutMillis(settings.timeoutMs());
    if (!settings.password().isEmpty()) {
      config.password(settings.password());
    }
    Connection made = null;
    try {
      made = new Connection(new HostAndPort(address.host(), address.port()), config.build());
      made.sendCommand(Command.SELECT, settings.keyspace());
      made.getOne();
      if (settings.level() != Settings.Level.DEFAULT) {
        made.sendCommand(RHEO, "LEVEL", settings.levelWord());
        made.getOne();
      }
      if (settings.strategy() != Settings.Strategy.AUTO) {
        made.sendCommand(RHEO, "STRATEGY", Settings.word(settings.strategy()));
        made.getOne();
      }
      return made;
    } catch (JedisException error) {
      if (made != null) {
        made.close();
      }
      throw error instanceof JedisDataException data ? refused(data) : broken(error);
    }
  }

  /** An error reply: its first word says what it is. */
  private static StoreException refused(JedisDataException error) {
    String message = String.valueOf(error.getMessage());
    Status status = switch (message.split(" ", 2)[0]) {
      case "TIMEOUT" -> StoreException.TIMEOUT;
      case "BUSY", "CLUSTERDOWN", "LOADING" -> Status.SERVICE_UNAVAILABLE;
      case "NOAUTH", "WRONGPASS", "NOPERM" -> Status.FORBIDDEN;
      case "SESSION" -> Status.UNEXPECTED_STATE;
      case "ERR", "CROSSSLOT", "WRONGTYPE" -> Status.BAD_REQUEST;
      default -> Status.ERROR;
    };
    return new StoreException(status, message, error);
  }

  private StoreException broken(JedisException error) {
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      if (cause instanceof SocketTimeoutException) {
        return new StoreException(StoreException.TIMEOUT, address + " did not answer within " + settings.timeoutMs() + " ms", error);
      }
    }
    Status status = error instanceof JedisConnectionException ? Status.SERVICE_UNAVAILABLE : Status.ERROR;
    return new StoreException(status, address + ": " + error.getMessage(), error);
  }
}
