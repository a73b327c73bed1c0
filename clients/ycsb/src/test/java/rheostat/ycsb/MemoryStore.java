package rheostat.ycsb;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A store in memory that notes what it is asked. */
final class MemoryStore implements Store {
  final Map<ByteBuffer, byte[]> values = new HashMap<>();
  final List<String> asked = new ArrayList<>();

  @Override
  public byte[] get(byte[] key) {
    asked.add("get");
    return values.get(ByteBuffer.wrap(key));
  }

  @Override
  public List<byte[]> getAll(List<byte[]> keys) {
    asked.add("get " + keys.size());
    return keys.stream().map(key -> values.get(ByteBuffer.wrap(key))).toList();
  }

  @Override
  public void put(byte[] key, byte[] value) {
    asked.add("put");
    values.put(ByteBuffer.wrap(key), value);
  }

  @Override
  public void putAll(List<byte[]> keys, List<byte[]> written) {
    asked.add("put " + keys.size());
    for (int i = 0; i < keys.size(); i++) {
      values.put(ByteBuffer.wrap(keys.get(i)), written.get(i));
    }
  }

  @Override
  public boolean delete(List<byte[]> keys) {
    asked.add("delete " + keys.size());
    return keys.stream().map(key -> values.remove(ByteBuffer.wrap(key)) != null).reduce(false, Boolean::logicalOr);
  }

  @Override
  public void close() {}
}
