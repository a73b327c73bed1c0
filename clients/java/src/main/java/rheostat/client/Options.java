package rheostat.client;

import java.time.Duration;

/**
 * How long a client waits, and how often it tries.
 *
 * @param deadline how long an operation may go on beginning new tries
 * @param readRetries how often a read is sent again when it fails for a passing reason, and an update of counters also where the first try may have been made: it has a
 *     name. Other writes are never sent again
 * @param retryPause the first pause between two tries; each further one is twice as long
 * @param returnAfter for how long a region that could not be reached is passed over
 * @param silenceAfter after what time a subscription to violations takes the connection for lost when it hears nothing, not even an answer to its question whether somebody
 *     is there
 */
public record Options(Duration deadline, int readRetries, Duration retryPause, Duration returnAfter, Duration silenceAfter) {
  /** 5 s, 3 times, 20 ms, 5 s, 10 s. */
  public static final Options DEFAULT = new Options(Duration.ofSeconds(5), 3, Duration.ofMillis(20), Duration.ofSeconds(5), Duration.ofSeconds(10));

  /** With this number of retries. */
  public Options withReadRetries(int readRetries) {
    return new Options(deadline, readRetries, retryPause, returnAfter, silenceAfter);
  }

  /** With this time to pass over a region. */
  public Options withReturnAfter(Duration returnAfter) {
    return new Options(deadline, readRetries, retryPause, returnAfter, silenceAfter);
  }

  /** With this time for new tries. */
  public Options withDeadline(Duration deadline) {
    return new Options(deadline, readRetries, retryPause, returnAfter, silenceAfter);
  }

  /** With this time until silence. */
  public Options withSilenceAfter(Duration silenceAfter) {
    return new Options(deadline, readRetries, retryPause, returnAfter, silenceAfter);
  }
}
