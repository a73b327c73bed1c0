package rheostat.client;

import java.util.List;

/**
 * A counter to be made.
 *
 * @param lower it is never below this; null is no bound
 * @param upper it is never above this; null is no bound
 * @param initial its value at first
 * @param placement each data center's weight in the placement of its rights; none is evenly
 */
public record NewCounter(Long lower, Long upper, long initial, List<Integer> placement) {
  /** Without bounds, at 0. */
  public static final NewCounter UNBOUNDED = new NewCounter(null, null, 0, List.of());

  /** Never below {@code lower}. */
  public static NewCounter atLeast(long lower, long initial) {
    return new NewCounter(lower, null, initial, List.of());
  }

  /** Never above this. */
  public NewCounter atMost(long upper) {
    return new NewCounter(lower, upper, initial, placement);
  }

  /** With these weights of the data centers. */
  public NewCounter placed(Integer... weights) {
    return new NewCounter(lower, upper, initial, List.of(weights));
  }
}
