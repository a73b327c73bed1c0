package rheostat.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;

/**
 * What a read returned.
 *
 * @param value null when the key is absent, deleted or expired
 * @param quality how good it is
 */
public record Read(byte[] value, Quality quality) {
  /** The value as text (UTF-8); null if there is none. */
  public String text() {
    return value == null ? null : new String(value, StandardCharsets.UTF_8);
  }

  /** The level that was achieved. */
  public String level() {
    return quality.level();
  }

  /** As {@link Quality#staleness}. */
  public Duration staleness() {
    return quality.staleness();
  }

  /** The version that was read; null if the key has none. */
  public Version version() {
    return quality.version();
  }

  /** Under a service level; else null. */
  public Achieved achieved() {
    return quality.achieved();
  }
}
