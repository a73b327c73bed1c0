package rheostat.client;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * What a read-only transaction returned.
 *
 * @param values one for each key, in their order; null where the key is absent
 * @param quality how good they are
 */
public record Many(List<byte[]> values, Quality quality) {
  /** The values as texts (UTF-8). */
  public List<String> texts() {
    List<String> texts = new ArrayList<>(values.size());
    values.forEach(value -> texts.add(value == null ? null : new String(value, StandardCharsets.UTF_8)));
    return texts;
  }
}
