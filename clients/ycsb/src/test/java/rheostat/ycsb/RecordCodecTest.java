package rheostat.ycsb;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;

class RecordCodecTest {
  @Test
  void bytesAreAsDocumented() {
    Map<String, byte[]> record = new LinkedHashMap<>();
    record.put("b", new byte[] {7});
    record.put("a", new byte[0]);
    assertArrayEquals(new byte[] {1, 0, 2, 0, 1, 'a', 0, 0, 0, 0, 0, 1, 'b', 0, 0, 0, 1, 7}, RecordCodec.encode(record));
  }

  @Test
  void whatIsEncodedIsDecoded() {
    Random random = new Random(1);
    for (int round = 0; round < 200; round++) {
      Map<String, byte[]> record = new HashMap<>();
      for (int field = random.nextInt(12); field > 0; field--) {
        byte[] value = new byte[random.nextInt(300)];
        random.nextBytes(value);
        record.put("field-é-" + random.nextInt(50), value);
      }
      Map<String, byte[]> decoded = RecordCodec.decode(RecordCodec.encode(record));
      assertEquals(record.keySet(), decoded.keySet());
      record.forEach((name, value) -> assertArrayEquals(value, decoded.get(name)));
    }
  }

  @Test
  void orderDoesNotMatter() {
    Map<String, byte[]> one = new LinkedHashMap<>();
    one.put("x", bytes("1"));
    one.put("y", bytes("2"));
    Map<String, byte[]> other = new LinkedHashMap<>();
    other.put("y", bytes("2"));
    other.put("x", bytes("1"));
    assertArrayEquals(RecordCodec.encode(one), RecordCodec.encode(other));
  }

  @Test
  void everyCutAndEveryTailIsRefused() {
    byte[] whole = RecordCodec.encode(Map.of("name", bytes("value"), "other", bytes("")));
    for (int length = 0; length < whole.length; length++) {
      byte[] cut = Arrays.copyOf(whole, length);
      assertThrows(IllegalArgumentException.class, () -> RecordCodec.decode(cut), "cut to " + length);
    }
    assertThrows(IllegalArgumentException.class, () -> RecordCodec.decode(Arrays.copyOf(whole, whole.length + 1)));
  }

  @Test
  void foreignValuesAreRefusedInWords() {
    String message = assertThrows(IllegalArgumentException.class, () -> RecordCodec.decode(bytes("xyz"))).getMessage();
    assertTrue(message.contains("not a record of this binding"), message);
    byte[] twice = {1, 0, 2, 0, 1, 'a', 0, 0, 0, 0, 0, 1, 'a', 0, 0, 0, 0};
    assertTrue(assertThrows(IllegalArgumentException.class, () -> RecordCodec.decode(twice)).getMessage().contains("twice"));
    byte[] negative = {1, 0, 1, 0, 1, 'a', -1, -1, -1, -1};
    assertThrows(IllegalArgumentException.class, () -> RecordCodec.decode(negative));
  }

  @Test
  void namesThatAreTooLongAreRefused() {
    assertThrows(IllegalArgumentException.class, () -> RecordCodec.encode(Map.of("n".repeat(65536), bytes(""))));
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
