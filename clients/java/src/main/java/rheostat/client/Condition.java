package rheostat.client;

import java.nio.charset.StandardCharsets;

/** What a key must be for {@link Session#putIf} to write it. */
public final class Condition {
  final String word;
  final byte[] expected;

  private Condition(String word, byte[] expected) {
    this.word = word;
    this.expected = expected;
  }

  /** Without a value. */
  public static Condition absent() {
    return new Condition("NX", null);
  }

  /** With a value. */
  public static Condition present() {
    return new Condition("XX", null);
  }

  /** With this value. */
  public static Condition value(byte[] expected) {
    return new Condition("CAS", expected);
  }

  /** With this value, in UTF-8. */
  public static Condition value(String expected) {
    return value(expected.getBytes(StandardCharsets.UTF_8));
  }
}
