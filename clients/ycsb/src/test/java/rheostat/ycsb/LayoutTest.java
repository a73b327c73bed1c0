package rheostat.ycsb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import site.ycsb.Status;

class LayoutTest {
  private final MemoryStore store = new MemoryStore();

  private static Layout layout(String kind) throws SettingException {
    return Layout.of(Settings.of(SettingsTest.properties("rheostat.fields", kind, "fieldcount", "3")));
  }

  private static Map<String, byte[]> record(String... pairs) {
    Map<String, byte[]> record = new TreeMap<>();
    for (int i = 0; i < pairs.length; i += 2) {
      record.put(pairs[i], pairs[i + 1].getBytes(StandardCharsets.UTF_8));
    }
    return record;
  }

  private static String text(Map<String, byte[]> record) {
    if (record == null) {
      return "none";
    }
    Map<String, String> texts = new TreeMap<>();
    record.forEach((field, value) -> texts.put(field, new String(value, StandardCharsets.UTF_8)));
    return texts.toString();
  }

  private String read(Layout layout, String key, Set<String> fields) throws StoreException {
    return text(layout.read(store, "t", List.of(key), fields).get(0));
  }

  @ParameterizedTest
  @ValueSource(strings = {"keys", "value"})
  void recordsLiveAndDie(String kind) throws Exception {
    Layout layout = layout(kind);
    assertEquals("none", read(layout, "k", null));
    assertFalse(layout.delete(store, "t", "k"));
    layout.insert(store, "t", "k", record("field0", "a", "field1", "b", "field2", "c"));
    assertTrue(layout.update(store, "t", "k", record("field1", "B")));
    assertEquals("{field0=a, field1=B, field2=c}", read(layout, "k", null));
    assertEquals("{field1=B}", read(layout, "k", Set.of("field1")));
    assertNull(layout.read(store, "other", List.of("k"), null).get(0), "tables are apart");
    assertTrue(layout.delete(store, "t", "k"));
    assertEquals("none", read(layout, "k", null));
    assertTrue(store.values.isEmpty());
  }

  @ParameterizedTest
  @ValueSource(strings = {"keys", "value"})
  void severalRecordsAreOneTransaction(String kind) throws Exception {
    Layout layout = layout(kind);
    layout.insert(store, "t", "a", record("field0", "1", "field1", "2", "field2", "3"));
    layout.insert(store, "t", "c", record("field0", "4", "field1", "5", "field2", "6"));
    store.asked.clear();
    List<Map<String, byte[]>> read = layout.read(store, "t", List.of("a", "b", "c"), null);
    assertEquals("[{field0=1, field1=2, field2=3}, none, {field0=4, field1=5, field2=6}]", read.stream().map(LayoutTest::text).toList().toString());
    assertEquals(List.of(kind.equals("keys") ? "get 9" : "get 3"), store.asked);
  }

  @Test
  void keysLayoutIsOneRequestForEachOperation() throws Exception {
    Layout layout = layout("keys");
    layout.insert(store, "t", "k", record("field0", "a", "field1", "b", "field2", "c"));
    layout.update(store, "t", "k", record("field1", "B"));
    layout.read(store, "t", List.of("k"), null);
    layout.read(store, "t", List.of("k"), Set.of("field2"));
    layout.delete(store, "t", "k");
    assertEquals(List.of("put 3", "put", "get 3", "get", "delete 3"), store.asked);
  }

  @Test
  void keysOfARecordShareTheirHashTag() throws Exception {
    layout("keys").insert(store, "t", "k", record("field0", "a", "field1", "b", "field2", "c"));
    store.values.keySet().forEach(key -> assertTrue(new String(key.array(), StandardCharsets.UTF_8).startsWith("{t/k}field")));
  }

  @Test
  void valueLayoutReadsBeforeItChangesAPart() throws Exception {
    Layout layout = layout("value");
    assertFalse(layout.update(store, "t", "k", record("field1", "B")), "there is nothing to change");
    store.asked.clear();
    assertTrue(layout.update(store, "t", "k", record("field0", "a", "field1", "b", "field2", "c")), "the whole record is known");
    assertEquals(List.of("put"), store.asked);
    layout.update(store, "t", "k", record("field2", "C"));
    assertEquals(List.of("put", "get", "put"), store.asked);
  }

  @Test
  void valuesOfOthersAreNotTakenForRecords() throws Exception {
    store.put("t/k".getBytes(StandardCharsets.UTF_8), "something".getBytes(StandardCharsets.UTF_8));
    assertSame(Status.UNEXPECTED_STATE, assertThrows(StoreException.class, () -> read(layout("value"), "k", null)).status());
  }

  @ParameterizedTest
  @ValueSource(strings = {"keys", "value"})
  void namesThatCouldMeetAreRefused(String kind) throws Exception {
    Layout layout = layout(kind);
    for (List<String> name : List.of(List.of("t", "a}b"), List.of("t", "{a"), List.of("a/b", "c"), List.of("{t", "c"), List.of("t", ""))) {
      StoreException error = assertThrows(StoreException.class, () -> layout.read(store, name.get(0), List.of(name.get(1)), null));
      assertSame(Status.BAD_REQUEST, error.status());
    }
  }

  @Test
  void keysCountOn() throws StoreException {
    assertEquals(List.of("user9", "user10", "user11"), ConsecutiveKeys.from("user9", 3, 1));
    assertEquals(List.of("user0099", "user0100"), ConsecutiveKeys.from("user0099", 2, 4));
    assertEquals(Collections.emptyList(), ConsecutiveKeys.from("user1", 0, 1));
    for (String key : List.of("user", "", "user9223372036854775807")) {
      assertThrows(StoreException.class, () -> ConsecutiveKeys.from(key, 2, 1), key);
    }
  }
}
