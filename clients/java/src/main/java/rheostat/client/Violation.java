package rheostat.client;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * A violation of a predicate. What was possible and turns out to be certain is told again, under the same node and number.
 *
 * @param node the node whose monitor says it
 * @param number its number there
 * @param atMs when it was said, in milliseconds since the Unix epoch
 * @param keyspace the keyspace
 * @param monitor the predicate; of a pattern with what stands in its braces, as {@code name[17,4]}
 * @param certain whether there was a moment at which all states stood; otherwise there may have been
 * @param notBefore a moment at which these states did not violate it yet
 * @param evidence the states that violate it together
 */
public record Violation(String node, long number, long atMs, String keyspace, String monitor, boolean certain, Moment notBefore, List<Evidence> evidence)
    implements Said {
  /**
   * A server's time.
   *
   * @param millis milliseconds since the Unix epoch
   * @param counter the counter within the millisecond
   */
  public record Moment(long millis, long counter) {
    private static Moment parse(Object reply) {
      String text = Replies.text(reply);
      int dot = text.indexOf('.');
      return new Moment(Long.parseLong(text.substring(0, dot)), Long.parseLong(text.substring(dot + 1)));
    }
  }

  /**
   * One of the states that violate a predicate together.
   *
   * @param key the key
   * @param value its value, or how it begins; null if the key was absent
   * @param version the value's version; null if it was never written
   * @param dataCenter the data center where it stood
   * @param from since when, on that server's clock
   * @param until until when; null if it stands, as far as is known
   */
  public record Evidence(byte[] key, byte[] value, Version version, String dataCenter, Moment from, Moment until) {
    private static Evidence of(Object reply) {
      Map<String, Object> one = Replies.map(reply);
      Object version = one.get("version");
      Object until = one.get("until");
      return new Evidence((byte[]) one.get("key"), (byte[]) one.get("value"), version == null ? null : Version.parse(Replies.text(version)),
          Replies.text(one.get("data_center")), Moment.parse(one.get("from")), until == null ? null : Moment.parse(until));
    }
  }

  /** What a pushed message says. One that cannot be understood may have been a violation. */
  static Said ofPush(Object reply) {
    try {
      Map<String, Object> said = Replies.map(reply);
      String what = Replies.text(said.get("what"));
      if ("gap".equals(what)) {
        return new Missed(Replies.text(said.get("why")));
      }
      if (!"violated".equals(what) && !"possible".equals(what)) {
        throw new IllegalArgumentException(what);
      }
      List<Evidence> evidence = new ArrayList<>();
      ((List<?>) said.get("evidence")).forEach(one -> evidence.add(Evidence.of(one)));
      return new Violation(Replies.text(said.get("node")), (Long) said.get("number"), (Long) said.get("at_ms"), Replies.text(said.get("keyspace")),
          Replies.text(said.get("monitor")), what.equals("violated"), Moment.parse(said.get("not_before")), List.copyOf(evidence));
    } catch (RuntimeException error) {
      return new Missed("a message that this client does not understand: " + error.getMessage());
    }
  }
}
