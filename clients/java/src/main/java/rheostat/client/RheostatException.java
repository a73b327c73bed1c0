package rheostat.client;

import java.util.OptionalLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import redis.clients.jedis.exceptions.JedisDataException;

/** Why an operation failed. All are Jedis' exceptions too, so that code which catches those goes on doing so. */
public abstract class RheostatException extends JedisDataException {
  private RheostatException(String message, Throwable cause) {
    super(message, cause);
  }

  /** The request is malformed, or the keyspace does not serve it. Nothing was changed. */
  public static class Refused extends RheostatException {
    Refused(String message, Throwable cause) {
      super(message, cause);
    }

    Refused(String message) {
      this(message, null);
    }
  }

  /** The server does not know {@code RHEO}: it is a Redis, not a Rheostat. */
  public static final class NotRheostat extends Refused {
    NotRheostat(String message, Throwable cause) {
      super(message, cause);
    }
  }

  /** The session's token is damaged or forged, does not belong to this cluster or keyspace, or was signed too long ago. Nothing was changed. */
  public static final class Token extends RheostatException {
    Token(String message, Throwable cause) {
      super(message, cause);
    }
  }

  /** The password is missing or wrong, or the user may not do this. Nothing was changed. */
  public static final class Unauthenticated extends RheostatException {
    Unauthenticated(String message, Throwable cause) {
      super(message, cause);
    }
  }

  /** The server has too much to do, or the pool has no connection left. Nothing was changed. */
  public static final class Busy extends RheostatException {
    Busy(String message, Throwable cause) {
      super(message, cause);
    }
  }

  /** The deadline passed. A write may have happened. */
  public static final class Timeout extends RheostatException {
    Timeout(String message, Throwable cause) {
      super(message, cause);
    }
  }

  /** No region can be reached, or the connection was lost. A write may have happened, unless {@link #nothingSent}. */
  public static final class Unreachable extends RheostatException {
    private final boolean nothingSent;

    Unreachable(String message, boolean nothingSent, Throwable cause) {
      super(message, cause);
      this.nothingSent = nothingSent;
    }

    /** Whether it is certain that nothing was changed. */
    public boolean nothingSent() {
      return nothingSent;
    }
  }

  /** The server's store failed, or it answered something that this client does not understand. A write may have happened. */
  public static final class Server extends RheostatException {
    Server(String message, Throwable cause) {
      super(message, cause);
    }
  }

  /** A counter would leave its bounds, with the rights that the update could use. Nothing was changed. */
  public static final class NoRights extends RheostatException {
    private static final Pattern RIGHTS = Pattern.compile(
        "counter (.*) is at (-?\\d+) and needs (\\d+) rights to (decrement|increment); here are (\\d+), elsewhere (\\d+)", Pattern.DOTALL);
    private final Matcher found;
    private final boolean told;

    NoRights(String message, Throwable cause) {
      super(message, cause);
      found = RIGHTS.matcher(message);
      told = found.find();
    }

    /** The counter. */
    public String key() {
      return told ? found.group(1) : "";
    }

    /** Its value as known in the data center that answered. */
    public OptionalLong value() {
      return number(2);
    }

    /** Which rights are missing: {@code down} or {@code up}. */
    public String direction() {
      return told && found.group(4).equals("decrement") ? "down" : "up";
    }

    /** How many rights are needed. */
    public OptionalLong needed() {
      return number(3);
    }

    /** How many rights that data center has. */
    public OptionalLong here() {
      return number(5);
    }

    /** How many rights the others have, as known there. */
    public OptionalLong elsewhere() {
      return number(6);
    }

    private OptionalLong number(int group) {
      try {
        return told ? OptionalLong.of(Long.parseLong(found.group(group))) : OptionalLong.empty();
      } catch (NumberFormatException tooLarge) {
        return OptionalLong.of(Long.MAX_VALUE);
      }
    }
  }

  /** An error reply, as one of ours. */
  static RheostatException ofReply(JedisDataException error) {
    if (error instanceof RheostatException ours) {
      return ours;
    }
    String message = String.valueOf(error.getMessage());
    int space = message.indexOf(' ');
    String code = space < 0 ? message : message.substring(0, space);
    String text = space < 0 ? "" : message.substring(space + 1);
    switch (code) {
      case "NOAUTH", "WRONGPASS", "NOPERM":
        return new Unauthenticated(text, error);
      case "SESSION":
        return new Token(text, error);
      case "NORIGHTS":
        return new NoRights(text, error);
      case "BUSY":
        return new Busy(text, error);
      case "TIMEOUT", "NOREPLICAS":
        return new Timeout(text, error);
      case "CLUSTERDOWN":
        return new Unreachable(text, false, error);
      case "LOADING":
        return new Unreachable(text, true, error);
      case "ERR", "CROSSSLOT", "EXECABORT", "NOPROTO", "WRONGTYPE":
        String lower = text.toLowerCase(java.util.Locale.ROOT);
        boolean unknown = lower.startsWith("unknown command 'rheo'") || lower.startsWith("unknown command `rheo`");
        return unknown ? new NotRheostat("the server does not know RHEO, so it is no Rheostat: " + text, error) : new Refused(text, error);
      default:
        return new Server(message, error);
    }
  }
}
