package rheostat.ycsb;

import java.util.ArrayList;
import java.util.List;
import site.ycsb.Status;

/** The keys that follow one in YCSB's ordered keys: a word, then a number that counts up. */
final class ConsecutiveKeys {
  private ConsecutiveKeys() {}

  /**
   * Keys from {@code start} on.
   *
   * @param digits least number of digits, filled with zeros
   */
  static List<String> from(String start, int count, int digits) throws StoreException {
    int at = start.length();
    while (at > 0 && start.charAt(at - 1) >= '0' && start.charAt(at - 1) <= '9') {
      at--;
    }
    long number;
    try {
      number = Long.parseLong(start.substring(at));
      Math.addExact(number, count);
    } catch (NumberFormatException | ArithmeticException error) {
      throw new StoreException(Status.BAD_REQUEST, "key " + start + " does not end in a number that can be counted on from", error);
    }
    List<String> keys = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      String figures = Long.toString(number + i);
      keys.add(start.substring(0, at) + "0".repeat(Math.max(0, digits - figures.length())) + figures);
    }
    return keys;
  }
}
