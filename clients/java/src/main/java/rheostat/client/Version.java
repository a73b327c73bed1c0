package rheostat.client;

/**
 * A version's name.
 *
 * @param millis when it was written, on its writer's clock: milliseconds since the Unix epoch
 * @param counter the counter within the millisecond
 * @param origin the data center where it was written
 */
public record Version(long millis, long counter, String origin) {
  /** {@code millis.counter@origin} */
  @Override
  public String toString() {
    return millis + "." + counter + "@" + origin;
  }

  /** What {@link #toString} says. */
  public static Version parse(String text) {
    int at = text.indexOf('@');
    int dot = text.indexOf('.');
    if (at < 0 || dot < 0 || dot > at) {
      throw new IllegalArgumentException("\"" + text + "\" is no version");
    }
    return new Version(Long.parseLong(text.substring(0, dot)), Long.parseLong(text.substring(dot + 1, at)), text.substring(at + 1));
  }
}
