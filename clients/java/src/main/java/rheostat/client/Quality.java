package rheostat.client;

import java.time.Duration;

/**
 * How good an answer was.
 *
 * @param level the level that was achieved; null after a write
 * @param staleness every write of another data center that is older is reflected; null when no bound is known
 * @param version the version that was read or written; null if there is none
 * @param achieved under a service level; else null
 */
public record Quality(String level, Duration staleness, Version version, Achieved achieved) {
  static final Quality NONE = new Quality(null, null, null, null);
}
