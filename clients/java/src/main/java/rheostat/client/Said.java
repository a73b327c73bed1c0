package rheostat.client;

/** What a subscription to violations tells: a {@link Violation}, {@link Missed} or {@link Silence}. */
public sealed interface Said permits Violation, Said.Missed, Said.Silence {
  /**
   * Violations may have been missed.
   *
   * @param why why
   */
  record Missed(String why) implements Said {}

  /**
   * The connection was lost: from now on nobody tells anything, until {@link Missed} says that somebody does again.
   *
   * @param why why
   */
  record Silence(String why) implements Said {}
}
