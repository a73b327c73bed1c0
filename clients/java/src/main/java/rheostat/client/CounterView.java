package rheostat.client;

import java.time.Duration;
import java.util.List;

/**
 * A counter, as known in one data center.
 *
 * @param value its value
 * @param lower it is never below this; null is no bound
 * @param upper it is never above this; null is no bound
 * @param rights per data center
 * @param level the level that was achieved
 * @param staleness every update of another data center that is older is reflected; null when no bound is known
 */
public record CounterView(long value, Long lower, Long upper, List<Rights> rights, String level, Duration staleness) {
  /**
   * What one data center may do to a counter.
   *
   * @param dataCenter its name
   * @param down by how much it may decrement; null without a lower bound
   * @param up by how much it may increment; null without an upper bound
   * @param standing {@code member}, {@code reclaiming}, or {@code reclaimed by NAME}
   */
  public record Rights(String dataCenter, Long down, Long up, String standing) {}
}
