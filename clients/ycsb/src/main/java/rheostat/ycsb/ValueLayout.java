package rheostat.ycsb;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import site.ycsb.Status;

/**
 * A record is one value, as {@link RecordCodec} writes it, under {@code table/key}. An update of some fields reads the record and writes it anew: two
 * requests, and of two clients that do so at once one loses its change.
 */
final class ValueLayout implements Layout {
  private final List<String> allFields;

  ValueLayout(List<String> allFields) {
    this.allFields = allFields;
  }

  @Override
  public List<Map<String, byte[]>> read(Store store, String table, List<String> keys, Set<String> fields) throws StoreException {
    List<byte[]> asked = new ArrayList<>(keys.size());
    for (String key : keys) {
      asked.add(Layout.bytes(Layout.name(table, key)));
    }
    List<byte[]> values = Layout.values(store, asked);
    List<Map<String, byte[]>> records = new ArrayList<>(keys.size());
    for (byte[] value : values) {
      Map<String, byte[]> record = decode(value);
      if (record != null && fields != null) {
        record.keySet().retainAll(fields);
      }
      records.add(record);
    }
    return records;
  }

  @Override
  public void insert(Store store, String table, String key, Map<String, byte[]> record) throws StoreException {
    byte[] value;
    try {
      value = RecordCodec.encode(record);
    } catch (IllegalArgumentException error) {
      throw new StoreException(Status.BAD_REQUEST, error.getMessage(), error);
    }
    store.put(Layout.bytes(Layout.name(table, key)), value);
  }

  @Override
  public boolean update(Store store, String table, String key, Map<String, byte[]> fields) throws StoreException {
    if (fields.keySet().containsAll(allFields)) {
      insert(store, table, key, fields);
      return true;
    }
    Map<String, byte[]> record = read(store, table, List.of(key), null).get(0);
    if (record == null) {
      return false;
    }
    Map<String, byte[]> changed = new LinkedHashMap<>(record);
    changed.putAll(fields);
    insert(store, table, key, changed);
    return true;
  }

  @Override
  public boolean delete(Store store, String table, String key) throws StoreException {
    return store.delete(List.of(Layout.bytes(Layout.name(table, key))));
  }

  private static Map<String, byte[]> decode(byte[] value) throws StoreException {
    try {
      return value == null ? null : RecordCodec.decode(value);
    } catch (IllegalArgumentException error) {
      throw new StoreException(Status.UNEXPECTED_STATE, error.getMessage(), error);
    }
  }
}
