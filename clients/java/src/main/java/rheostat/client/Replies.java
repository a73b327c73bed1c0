package rheostat.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.util.KeyValue;

/** Replies of RESP2 and RESP3, as Jedis reads them before it gives them a type. */
final class Replies {
  private Replies() {}

  static String text(Object reply) {
    return reply instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : reply == null ? null : reply.toString();
  }

  static Long number(Object reply) {
    return reply instanceof Long number ? number : null;
  }

  static Map<String, Object> map(Object reply) {
    Map<String, Object> made = new LinkedHashMap<>();
    if (reply instanceof List<?> items) {
      if (!items.isEmpty() && items.get(0) instanceof KeyValue<?, ?>) {
        items.forEach(item -> made.put(text(((KeyValue<?, ?>) item).getKey()), ((KeyValue<?, ?>) item).getValue()));
      } else {
        for (int i = 0; i + 1 < items.size(); i += 2) {
          made.put(text(items.get(i)), items.get(i + 1));
        }
      }
    }
    return made;
  }

  private static Duration staleness(Object reply) {
    Long ms = number(reply);
    return ms == null ? null : Duration.ofMillis(ms);
  }

  static Quality quality(Object reply) {
    Map<String, Object> said = map(reply);
    Long entry = number(said.get("entry"));
    Long used = number(said.get("used_us"));
    String version = text(said.get("version"));
    Long copies = number(said.get("data_centers"));
    Achieved achieved = entry == null ? null : new Achieved(entry.intValue(), Duration.ofNanos(used == null ? 0 : used * 1000),
        text(said.get("answered_in")), copies == null ? null : copies.intValue());
    return new Quality(text(said.get("level")), staleness(said.get("staleness_ms")), version == null ? null : Version.parse(version), achieved);
  }

  static CounterView view(Object reply) {
    Map<String, Object> said = map(reply);
    List<CounterView.Rights> rights = new ArrayList<>();
    map(said.get("rights")).forEach((name, of) -> {
      Map<String, Object> right = map(of);
      rights.add(new CounterView.Rights(name, number(right.get("down")), number(right.get("up")), text(right.get("standing"))));
    });
    return new CounterView((Long) said.get("value"), number(said.get("min")), number(said.get("max")), rights, text(said.get("level")),
        staleness(said.get("staleness_ms")));
  }

  static List<byte[]> bytes(Object reply) {
    List<byte[]> values = new ArrayList<>();
    ((List<?>) reply).forEach(value -> values.add((byte[]) value));
    return values;
  }
}
