package rheostat.ycsb;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;

/**
 * A record of fields as one value. Numbers are unsigned, the most significant byte first:
 *
 * <pre>
 * 1 byte    format, 1
 * 2 bytes   number of fields
 * of each field, in the order of the names:
 *   2 bytes length of the name, then the name in UTF-8
 *   4 bytes length of the value, then the value
 * </pre>
 *
 * Nothing may follow. The same record has the same bytes, whatever the order of the map.
 */
final class RecordCodec {
  private static final byte FORMAT = 1;
  private static final int MAX_SHORT = 0xFFFF;

  private RecordCodec() {}

  /** The bytes of a record. Throws IllegalArgumentException if a name or the number of fields does not fit in 16 bits. */
  static byte[] encode(Map<String, byte[]> record) {
    Map<byte[], byte[]> encoded = new LinkedHashMap<>();
    long length = 3;
    for (Map.Entry<String, byte[]> field : new TreeMap<>(record).entrySet()) {
      byte[] name = field.getKey().getBytes(StandardCharsets.UTF_8);
      if (name.length > MAX_SHORT) {
        throw new IllegalArgumentException("a field's name has " + name.length + " bytes; at most " + MAX_SHORT + " are allowed");
      }
      length += 6L + name.length + field.getValue().length;
      encoded.put(name, field.getValue());
    }
    if (encoded.size() > MAX_SHORT || length > Integer.MAX_VALUE - 8) {
      throw new IllegalArgumentException("a record of " + encoded.size() + " fields and " + length + " bytes is too large for one value");
    }
    ByteBuffer buffer = ByteBuffer.allocate((int) length);
    buffer.put(FORMAT).putShort((short) encoded.size());
    encoded.forEach((name, value) -> buffer.putShort((short) name.length).put(name).putInt(value.length).put(value));
    return buffer.array();
  }

  /** The record of the bytes. Throws IllegalArgumentException if they are not of this format. */
  static Map<String, byte[]> decode(byte[] bytes) {
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    try {
      byte format = buffer.get();
      if (format != FORMAT) {
        throw new IllegalArgumentException("the value is not a record of this binding: it begins with " + format + " instead of " + FORMAT);
      }
      int count = Short.toUnsignedInt(buffer.getShort());
      Map<String, byte[]> record = new LinkedHashMap<>();
      for (int i = 0; i < count; i++) {
        String name = new String(take(buffer, Short.toUnsignedInt(buffer.getShort())), StandardCharsets.UTF_8);
        if (record.put(name, take(buffer, buffer.getInt())) != null) {
          throw new IllegalArgumentException("the record has field " + name + " twice");
        }
      }
      if (buffer.hasRemaining()) {
        throw new IllegalArgumentException(buffer.remaining() + " bytes follow the record");
      }
      return record;
    } catch (BufferUnderflowException error) {
      throw new IllegalArgumentException("the record ends too early, after " + bytes.length + " bytes", error);
    }
  }

  /** Looks at the length before anything is allocated for it. */
  private static byte[] take(ByteBuffer buffer, int length) {
    if (length < 0 || length > buffer.remaining()) {
      throw new BufferUnderflowException();
    }
    byte[] taken = new byte[length];
    buffer.get(taken);
    return taken;
  }
}
